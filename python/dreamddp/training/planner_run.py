"""Training with one planner, from the common start to equal ranks."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from dreamddp._core import Link, Profile
from dreamddp.due_layers import PLANNER, DueLayerTimes
from dreamddp.policies import policies_from_json
from dreamddp.policy_training import due_layers
from dreamddp.training.config import TrainConfig
from dreamddp.training.data import Batches
from dreamddp.training.launcher import RankContext
from dreamddp.training.methods import (
    DdpMethod,
    DreamddpMethod,
    Method,
    StepTimes,
    emulated_link_spans,
    no_link_spans,
)
from dreamddp.training.models import MODELS, build_model
from dreamddp.training.predict import Prediction
from dreamddp.training.rows import PlannerResult, RankSteps, step_records, warm_steps
from dreamddp.training.spans import SpanFields, span_fields, span_record

MAX_RECORDED_ITERATIONS = 8

T = TypeVar("T")


def make_optimizer(model: nn.Module, *, learning_rate: float) -> torch.optim.Optimizer:
    """AdamW over all parameters."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate)


def run_planner(
    context: RankContext,
    config: TrainConfig,
    batches: Batches,
    prediction: Prediction,
    profile: Profile,
    link: Link,
    control: dist.ProcessGroup,
) -> PlannerResult | None:
    """Trains a new model from the seed and returns what was measured, on rank 0 (None elsewhere).

    Rank 0 emits the `step`, `span` and `decisions` records. Collective over all ranks.
    """
    model = build_model(config.model, config.seed)
    optimizer = make_optimizer(model, learning_rate=config.learning_rate)
    method: Method
    if prediction.planner == "ddp":
        method = DdpMethod(model, context.rank, no_link_spans if config.link is None else emulated_link_spans)
    elif prediction.planner == PLANNER and config.policies is not None:
        method = DreamddpMethod(model, optimizer, profile, link, policies=policies_from_json(config.policies))
    else:
        method = DreamddpMethod(model, optimizer, profile, link, plan=prediction.plan)
    steps = _train(context, config, batches, prediction, method, optimizer, control)
    decided = method.decisions()
    begin = time.monotonic()
    method.finish()
    finish_seconds = time.monotonic() - begin
    all_steps = _gather(context, steps, control)
    all_spans = _gather(context, [span_fields(span) for span in method.timeline()], control)
    final_loss = held_out_loss(context, config.model, batches, model, control)
    spread = rank_spread(model, control)
    if context.rank != 0:
        return None
    _emit_timelines(context, prediction, all_spans, one_clock=config.link is not None)
    for record in step_records(prediction.planner, all_steps):
        context.emit(record)
    for decisions in decided:
        context.emit({"kind": "decisions", "planner": prediction.planner, **asdict(decisions)})
    times = DueLayerTimes(profile, link)
    times.add(due_layers(decided))
    row = times.mean() or prediction.row
    return PlannerResult(
        planner=prediction.planner,
        period=prediction.period,
        predicted_seconds=row["iteration_seconds"],
        bytes_per_iteration=row["bytes_per_iteration"],
        final_loss=final_loss,
        rank_spread=spread,
        finish_seconds=finish_seconds,
        ranks=all_steps,
    )


def _train(
    context: RankContext,
    config: TrainConfig,
    batches: Batches,
    prediction: Prediction,
    method: Method,
    optimizer: torch.optim.Optimizer,
    control: dist.ProcessGroup,
) -> RankSteps:
    loss_of = MODELS[config.model].loss
    period = prediction.period
    record_from = warm_steps(config.steps, period).start
    seconds: list[float] = []
    exposed: list[float] = []
    losses: list[float] = []
    dist.barrier(control)
    step_ended = time.monotonic()
    for step in range(config.steps):
        if step == record_from:
            method.record(min(period + 1, MAX_RECORDED_ITERATIONS))
        batch = batches.draw(context.rank, step)
        optimizer.zero_grad()
        forward_begins = time.monotonic()
        loss = loss_of(method.module, batch)
        backward_begins = time.monotonic()
        loss.backward()
        backward_ends = time.monotonic()
        optimizer.step()
        losses.append(float(loss.detach()))
        step_began, step_ended = step_ended, time.monotonic()
        times = StepTimes(
            step=step,
            forward_begins=forward_begins,
            backward_begins=backward_begins,
            backward_ends=backward_ends,
            step_ends=step_ended,
        )
        seconds.append(step_ended - step_began)
        exposed.append(method.exposed_seconds(times))
        context.emit(
            {
                "kind": "progress",
                "phase": "training",
                "planner": prediction.planner,
                "done": step + 1,
                "loss": losses[-1],
                "seconds": seconds[-1],
            }
        )
    return RankSteps(seconds=seconds, exposed_seconds=exposed, losses=losses)


def _gather(context: RankContext, value: T, control: dist.ProcessGroup) -> list[T]:
    """The values of all ranks on rank 0; an empty list elsewhere."""
    values: list[T] | None = [value] * context.workers if context.rank == 0 else None
    dist.gather_object(value, values, dst=0, group=control)
    return values or []


def held_out_loss(
    context: RankContext, name: str, batches: Batches, model: nn.Module, control: dist.ProcessGroup
) -> float:
    """The mean loss over the held-out text, shared out among the ranks. Collective."""
    total = torch.zeros(2, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for batch in batches.held_out_batches(context.rank, context.workers):
            total += torch.tensor([float(MODELS[name].loss(model, batch)) * len(batch), len(batch)])
    dist.all_reduce(total, group=control)
    return float(total[0] / total[1])


def rank_spread(model: nn.Module, control: dist.ProcessGroup) -> float:
    """The largest difference between ranks of any parameter; nan where one is nan. Collective."""
    spread = 0.0
    for parameter in model.parameters():
        lowest, highest = parameter.detach().clone(), parameter.detach().clone()
        dist.all_reduce(lowest, op=dist.ReduceOp.MIN, group=control)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=control)
        difference = float((highest - lowest).max())
        if math.isnan(difference):
            return difference
        spread = max(spread, difference)
    return spread


def _emit_timelines(
    context: RankContext, prediction: Prediction, ranks: list[list[SpanFields]], *, one_clock: bool
) -> None:
    """Times count from the first span of all ranks, or of each rank where their clocks differ."""
    first = min((fields["begin_seconds"] for spans in ranks for fields in spans), default=0.0)
    for spans in ranks:
        own = min((fields["begin_seconds"] for fields in spans), default=0.0)
        for fields in spans:
            context.emit(span_record(fields, prediction.planner, "run", first if one_clock else own))
    for span in prediction.timeline:
        context.emit(span_record(span_fields(span), prediction.planner, "simulation", 0.0))
