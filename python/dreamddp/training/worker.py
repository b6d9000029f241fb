"""What one rank does: measure, predict, then train with every planner in turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dreamddp._core import Link, Profile
from dreamddp.due_layers import PLANNER
from dreamddp.profiling import measure_link, measure_profile
from dreamddp.training.config import PROFILE_ITERATIONS, EmulatedLink, TrainConfig
from dreamddp.training.data import Batches, make_batches
from dreamddp.training.jobs import ProfileJob, TrainJob
from dreamddp.training.launcher import RankContext
from dreamddp.training.link_setup import joined
from dreamddp.training.models import MODELS, build_model
from dreamddp.training.planner_run import make_optimizer, run_planner
from dreamddp.training.predict import Prediction, predict, predict_policies
from dreamddp.training.rows import PlannerResult, make_rows


def train(context: RankContext, job: TrainJob) -> None:
    """Carries out the run. Rank 0 emits its records, and the profile and the plans as `file` messages."""
    config = job.config
    use_one_thread(context)
    batches = batches_of(config.model, job.text, config.batch_size, config.seed)
    with joined(context, config.link, job.timeout_seconds) as control:
        profile = _measure(context, config.model, config.seed, batches, PROFILE_ITERATIONS)
        link = (
            measure_link(_everyone()) if config.link is None else _planning_link(config.link, context.workers)
        )
        predictions = predict(config.planners, profile, link, config.period)
        if config.policies is not None:
            predictions.append(predict_policies(config.policies, profile, link, config.steps))
        if context.rank == 0:
            _emit_predictions(context, profile, link, config, predictions)
        results = [
            run_planner(context, config, batches, prediction, profile, link, control)
            for prediction in predictions
        ]
        if context.rank == 0:
            for row in make_rows([result for result in results if isinstance(result, PlannerResult)]):
                context.emit({"kind": "row", **row})


def profile(context: RankContext, job: ProfileJob) -> None:
    """Measures a model, and the link where it is real. Rank 0 emits a `file` and, then, a `link` message."""
    config = job.config
    use_one_thread(context)
    batches = batches_of(config.model, job.text, config.batch_size, config.seed)
    with joined(context, None, job.timeout_seconds):
        measured = _measure(context, config.model, config.seed, batches, config.iterations)
        link = measure_link(_everyone()) if config.real_link and context.workers > 1 else None
        if context.rank == 0:
            context.emit({"kind": "file", "name": "profile.json", "text": measured.to_json()})
            if link is not None:
                context.emit(_link_record(link, emulated=False))


def use_one_thread(context: RankContext) -> None:
    """Ranks that share this machine compute with one thread each; torchrun's ranks as torchrun says."""
    if context.rendezvous is not None:
        torch.set_num_threads(1)


def batches_of(model: str, text: bytes, batch_size: int, seed: int) -> Batches:
    """The batches for a model."""
    window = MODELS[model].window_bytes
    return make_batches(text, window_bytes=window, batch_size=batch_size, seed=seed)


def _measure(context: RankContext, name: str, seed: int, batches: Batches, iterations: int) -> Profile:
    model = build_model(name, seed)
    optimizer = make_optimizer(model, learning_rate=0.0)
    iteration = _make_iteration(context, name, model, optimizer, batches)
    return measure_profile(model, optimizer, iteration, iterations=iterations)


def _make_iteration(
    context: RankContext,
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
) -> Callable[[], None]:
    spec = MODELS[name]
    done = 0

    def run() -> None:
        nonlocal done
        optimizer.zero_grad()
        loss = spec.loss(model, batches.draw(context.rank, done))
        loss.backward()
        optimizer.step()
        done += 1
        context.emit({"kind": "progress", "phase": "measuring the model", "done": done})

    return run


def _everyone() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def _planning_link(link: EmulatedLink, workers: int) -> Link:
    return Link(
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        latency_seconds=link.latency_seconds,
        workers=workers,
        in_flight=1,
    )


def _emit_predictions(
    context: RankContext,
    profile: Profile,
    link: Link,
    config: TrainConfig,
    predictions: list[Prediction],
) -> None:
    policies = config.policies
    text = profile.to_json()
    context.emit({"kind": "profile", "profile": json.loads(text)})
    context.emit({"kind": "file", "name": "profile.json", "text": text})
    context.emit(_link_record(link, emulated=config.link is not None))
    for prediction in predictions:
        name = f"plan-{prediction.planner}.json"
        context.emit({"kind": "plan", **prediction.row})
        if prediction.planner == PLANNER and policies is not None:
            context.emit({"kind": "file", "name": "policies.json", "text": policies})
        else:
            context.emit({"kind": "file", "name": name, "text": prediction.plan.to_json()})


def _link_record(link: Link, *, emulated: bool) -> dict[str, Any]:
    return {
        "kind": "link",
        "emulated": emulated,
        "bandwidth_bytes_per_second": link.bandwidth_bytes_per_second,
        "latency_seconds": link.latency_seconds,
        "workers": link.workers,
        "in_flight": link.in_flight,
    }
