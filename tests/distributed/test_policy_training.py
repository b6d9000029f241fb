"""Policies in real trainings: ranks always decide the same, and what is due is averaged, to the last bit."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dreamddp import DreamDDP, EventKind, Layer, Link, Plan, Profile, make_plan
from dreamddp._core import plan_due_layers, training_slack
from dreamddp.policies import (
    AdaptiveDirection,
    BoundedStaleness,
    Combined,
    Direction,
    FixedPeriod,
    Policies,
    policies_json,
)
from tests.distributed.models import mlp
from tests.distributed.ranks import RanksFailed, run_ranks

LAYERS = ["0", "2", "4"]
LINK = Link(bandwidth_bytes_per_second=1e8, latency_seconds=1e-3)

POLICIES: dict[str, Policies] = {
    "fixed period": FixedPeriod(3),
    "bounded staleness": BoundedStaleness(4),
    "direction": Direction(threshold=0.6, smoothing=0.25),
    "adaptive direction": AdaptiveDirection(threshold=0.8, smoothing=0.25, history_smoothing=0.9),
    "combined": Combined(most_staleness=6, under=Direction(threshold=0.6)),
    "by pattern": {"0": FixedPeriod(8), "2": Direction(), "*": BoundedStaleness(1)},
}


def profile() -> Profile:
    """Only backwards take time, so every window is one of the backward."""
    layers = [
        Layer(name, backward_seconds=1e-3, num_bytes=num_bytes)
        for name, num_bytes in zip(LAYERS, (576, 1088, 272), strict=True)
    ]
    return Profile(layers, step_seconds=0.0)


def batch(rank: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + iteration)
    return torch.randn(4, 8, generator=generator), torch.randn(4, 4, generator=generator)


def loss_of(model: nn.Module, rank: int, iteration: int) -> torch.Tensor:
    x, y = batch(rank, iteration)
    loss: torch.Tensor = (model(x) - y).square().mean()
    return loss


def make(rank: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def train(
    rank: int, policies: Policies, iterations: int, delay: Callable[[], float] = lambda: 0.0
) -> tuple[list[Any], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """What was decided, and the model before and after finish()."""
    model, optimizer = make(rank)
    sync = DreamDDP(model, optimizer, policies=policies, profile=profile(), link=LINK)
    for iteration in range(iterations):
        time.sleep(delay())
        loss = loss_of(model, rank, iteration)
        time.sleep(delay())
        loss.backward()
        time.sleep(delay())
        optimizer.step()
        optimizer.zero_grad()
    decided = [astuple(one) for one in sync.decisions()]
    before = state_of(model)
    sync.finish()
    return decided, before, state_of(model)


def train_with_delays(rank: int, name: str) -> tuple[list[Any], dict[str, torch.Tensor]]:
    source = random.Random(rank)
    decided, _, finished = train(
        rank, POLICIES[name], 500, lambda: 2e-3 * source.random() if source.random() < 0.2 else 0.0
    )
    return decided, finished


@pytest.mark.parametrize("name", POLICIES)
def test_ranks_with_other_data_and_speeds_decide_the_same(name: str) -> None:
    ranks = run_ranks(train_with_delays, 3, name)
    decided, finished = ranks[0]
    assert len(decided) == 499  # the first backward shows the reads; policies decide from the second on
    for others, state in ranks[1:]:
        assert others == decided
        assert all(torch.equal(state[key], finished[key]) for key in finished)
    due = [sum(layer[1] for layer in layers) for _, layers in decided]
    assert 0 < sum(due) <= 3 * 499
    if name != "bounded staleness":
        assert {layer[2] for _, layers in decided for layer in layers} != {"bounded-staleness"}


def average(models: list[nn.Module], plan: Plan, *, behind_step: bool) -> None:
    for op in plan.ops:
        if (op.launch.kind is EventKind.after_step) != behind_step:
            continue
        for segment in op.segments:
            layers = [m.get_submodule(plan.layers[segment.layer]) for m in models]
            vectors = [nn.utils.parameters_to_vector(layer.parameters()).detach() for layer in layers]
            part = slice(int(segment.begin * len(vectors[0])), int(segment.end * len(vectors[0])))
            mean = (vectors[0][part] + vectors[1][part]) / 2
            for layer, vector in zip(layers, vectors, strict=True):
                vector[part] = mean
                nn.utils.vector_to_parameters(vector, layer.parameters())


def reference(iterations: int, decided: list[Any]) -> list[dict[str, torch.Tensor]]:
    """Two models in one process: what is due is averaged, where its plan says so, and all step."""
    made = [make(rank) for rank in range(2)]
    models = [model for model, _ in made]
    due_in = {iteration: {layer[0] for layer in layers if layer[1]} for iteration, layers in decided}
    for iteration in range(iterations):
        for rank, model in enumerate(models):
            loss_of(model, rank, iteration).backward()
        is_due = [name in due_in.get(iteration, ()) for name in LAYERS]
        plan = plan_due_layers(profile(), LINK, is_due, slack=training_slack)
        average(models, plan, behind_step=False)
        for _, optimizer in made:
            optimizer.step()
            optimizer.zero_grad()
        average(models, plan, behind_step=True)
    return [state_of(model) for model in models]


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_due_is_averaged_and_nothing_else(name: str) -> None:
    results = run_ranks(train, 2, POLICIES[name], 40)
    decided = results[0][0]
    for (_, before, _), expected in zip(results, reference(40, decided), strict=True):
        for key, value in expected.items():
            assert torch.equal(before[key], value), key


def flat_gradient(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.double().flatten() for p in module.parameters() if p.grad is not None])


def similarities(rank: int) -> tuple[list[Any], list[list[float]]]:
    """Decisions, and this rank's own cosines, computed from whole gradients."""
    model, optimizer = make(rank)
    policies = Combined(most_staleness=3, under=Direction(threshold=-1))
    sync = DreamDDP(model, optimizer, policies=policies, profile=profile(), link=LINK, sketch_size=0)
    references: dict[str, torch.Tensor] = {}  # the first gradients that policies see are those of step 1
    own: list[list[float]] = []
    for iteration in range(12):
        loss_of(model, rank, iteration).backward()
        gradients = {
            name: torch.cat(
                [p.grad.flatten() for p in model.get_submodule(name).parameters() if p.grad is not None]
            )
            for name in LAYERS
        }
        own.append(
            [
                float(torch.cosine_similarity(gradients[name], references[name], dim=0))
                if name in references
                else float("nan")
                for name in LAYERS
            ]
        )
        for one in sync.decisions():
            if one.iteration == iteration:
                for layer in one.layers:
                    if layer.is_due or layer.layer not in references:
                        references[layer.layer] = gradients[layer.layer]
        optimizer.step()
        optimizer.zero_grad()
    return [astuple(one) for one in sync.decisions()], own


def test_similarities_are_means_over_ranks_against_pytorch() -> None:
    ranks = run_ranks(similarities, 2)
    decided = ranks[0][0]
    for iteration, layers in decided[1:]:
        for index, layer in enumerate(layers):
            values = [own[iteration - 1][index] for _, own in ranks]
            if layer[6] is None:
                assert all(value != value for value in values)
            else:
                assert layer[6] == pytest.approx(sum(values) / 2, abs=1e-5)


def resume(rank: int, saved_at: int) -> tuple[bool, bool]:
    """Whether a resumed training decides and computes what the uninterrupted one does."""
    policies = POLICIES["combined"]
    model, optimizer = make(rank)
    sync = DreamDDP(model, optimizer, policies=policies, profile=profile(), link=LINK)
    saved: dict[str, Any] = {}
    for iteration in range(30):
        if iteration == saved_at:
            saved = copy.deepcopy(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "sync": sync.state_dict()}
            )
        loss_of(model, rank, iteration).backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = [astuple(one) for one in sync.decisions()]
    state = state_of(model)
    sync.finish()
    sync.detach()

    model, optimizer = make(rank)
    sync = DreamDDP(model, optimizer, policies=policies)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    sync.load_state_dict(saved["sync"])
    for iteration in range(saved_at, 30):
        loss_of(model, rank, iteration).backward()
        optimizer.step()
        optimizer.zero_grad()
    resumed = [astuple(one) for one in sync.decisions()]
    same_state = all(torch.equal(state[key], value) for key, value in state_of(model).items())
    sync.finish()
    return resumed == whole[len(whole) - len(resumed) :] and len(resumed) == 30 - saved_at, same_state


@pytest.mark.parametrize("saved_at", [5, 8])
def test_resuming_is_exact(saved_at: int) -> None:
    assert run_ranks(resume, 2, saved_at) == [(True, True)] * 2


def measure_then_decide(rank: int) -> tuple[int, int, bool, float | None]:
    model, optimizer = make(rank)
    sync = DreamDDP(model, optimizer, policies=BoundedStaleness(2), link=LINK, profile_iterations=6)
    for iteration in range(20):
        loss_of(model, rank, iteration).backward()
        optimizer.step()
        optimizer.zero_grad()
    decided = sync.decisions()
    predicted = sync.stats().predicted_seconds
    sync.finish()
    staleness_after_finish = None
    loss_of(model, rank, 20).backward()
    optimizer.step()
    staleness_after_finish = sync.decisions()[-1].layers[0].value
    assert dist.get_rank() == rank
    return decided[0].iteration, len(decided), bool(predicted and predicted > 0), staleness_after_finish


def test_policies_begin_behind_the_measurement_and_finish_makes_layers_fresh() -> None:
    for first, count, has_prediction, staleness in run_ranks(measure_then_decide, 2):
        assert first + count == 20
        assert first >= 6
        assert has_prediction
        assert staleness == 1


def attach_badly(rank: int, case: str) -> str:
    model, optimizer = make(rank)
    cases: dict[str, dict[str, Any]] = {
        "no pattern": {"policies": {"0": FixedPeriod(2)}},
        "range": {"policies": FixedPeriod(0)},
        "one rank": {"policies": FixedPeriod(2 + rank)},
        "planner": {"policies": FixedPeriod(2), "planner": "local-sgd"},
        "fused": {"policies": FixedPeriod(2), "fused_update": True},
        "sketch": {"policies": FixedPeriod(2), "sketch_size": -1},
        "period": {"policies": FixedPeriod(2), "period": 4},
        "link": {
            "policies": FixedPeriod(2),
            "profile": profile(),
            "link": Link(bandwidth_bytes_per_second=1e8 * (1 + rank)),
        },
        "no link": {"policies": FixedPeriod(2), "profile": profile(), "link": LINK if rank == 0 else None},
    }
    with pytest.raises(ValueError, match=r".") as caught:
        DreamDDP(model, optimizer, **cases[case])
    return str(caught.value)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no pattern", "a pattern that matches layer '2'"),
        ("range", "fixed-period: period: got 0"),
        ("one rank", "policies"),
        ("planner", "planner: got 'local-sgd'; expected nothing beside policies"),
        ("fused", "fused_update: got True"),
        ("sketch", "sketch_size: got -1"),
        ("period", "period: got 4; expected nothing beside policies"),
        ("link", "model or arguments: link is Link(bandwidth_bytes_per_second=1"),
        ("no link", "None on rank 1"),
    ],
)
def test_what_does_not_fit_is_refused_on_all_ranks(case: str, message: str) -> None:
    for text in run_ranks(attach_badly, 2, case):
        assert message in text


def join_with_policies(rank: int) -> str:
    model, optimizer = make(rank)
    sync = DreamDDP(model, optimizer, policies=FixedPeriod(2), profile=profile(), link=LINK)
    with pytest.raises(ValueError, match=r"join\(\): got policies=") as caught, sync.join():
        pass
    return str(caught.value)


def test_join_is_refused() -> None:
    assert all("as many batches" in text for text in run_ranks(join_with_policies, 2))


def load_a_state_without_policies(rank: int) -> tuple[str, int]:
    model, optimizer = make(rank)
    sync = DreamDDP(model, optimizer, plan=make_plan("local-sgd", profile(), LINK, period=2), link=LINK)
    loss_of(model, rank, 0).backward()
    optimizer.step()
    optimizer.zero_grad()
    state = sync.state_dict()
    sync.detach()
    again, its_optimizer = make(rank)
    resumed = DreamDDP(again, its_optimizer, policies=FixedPeriod(2), profile=profile(), link=LINK)
    with pytest.raises(ValueError, match=r".") as caught:
        resumed.load_state_dict(state)
    assert resumed.link is not None
    return str(caught.value), resumed.link.workers


def test_a_state_without_policies_is_refused_where_there_are_some() -> None:
    for text, workers in run_ranks(load_a_state_without_policies, 3):
        assert "policies: got some; expected none, as the state was saved without" in text
        assert workers == 3  # whatever the given link says


def train_with_a_file(rank: int, path: str) -> bool:
    from_file, _, finished = train(rank, path, 12)
    given, _, expected = train(rank, {"0": FixedPeriod(2), "*": BoundedStaleness(3)}, 12)
    return from_file == given and all(torch.equal(finished[key], expected[key]) for key in expected)


def test_policies_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    path.write_text(policies_json({"0": FixedPeriod(2), "*": BoundedStaleness(3)}))
    assert run_ranks(train_with_a_file, 2, str(path)) == [True, True]


def skip_a_backward(rank: int) -> None:
    model, optimizer = make(rank)
    sync = DreamDDP(model, optimizer, policies=FixedPeriod(2), profile=profile(), link=LINK, timeout=3)
    for iteration in range(10):
        if rank == 1 and iteration == 7:
            continue
        loss_of(model, rank, iteration).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync.finish()


def test_a_rank_that_skips_a_backward_is_named() -> None:
    with pytest.raises(RanksFailed) as failed:
        run_ranks(skip_a_backward, 2)
    assert "SyncError" in failed.value.failures[0]
    assert "rank" in failed.value.failures[0]
