"""What travels is what the plan says: few ops where the latency of a link is high, and nothing frozen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from dreamddp import DreamDDP
from tests.distributed.emulated_ranks import booked, emulated_ranks
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.ranks import run_ranks

NUM_LAYERS = 200
ITERATIONS = 4


@dataclass
class Traffic:
    planned_ops: int
    """Per iteration."""
    ops: int
    all_reduces: int
    num_bytes: int
    """In the iterations counted."""
    link_latency_seconds: float


def train_many_layers(rank: int, folder: Path) -> Traffic:
    with emulated_ranks(rank, 2, folder, latency=0.02):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(NUM_LAYERS)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        sync = DreamDDP(model, optimizer, period=1, profile_iterations=5)
        first = 8
        for iteration in range(first + ITERATIONS):
            if iteration == first:
                sync._engine.finish()
                sync.stats(reset=True)
                before = len(booked())
            model(torch.randn(4, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        sync._engine.finish()
        statistics = sync._engine.statistics()
        assert sync.plan is not None and sync.link is not None
        assert sync.plan.planner == "balanced"
        return Traffic(
            len(sync.plan.ops),
            statistics.ops,
            len(booked()) - before,
            statistics.num_bytes,
            sync.link.latency_seconds,
        )


def test_f2_many_small_layers_travel_in_the_few_ops_of_the_plan(tmp_path: Path) -> None:
    first, second = run_ranks(train_many_layers, 2, tmp_path, init=False)
    assert first == second
    assert first.link_latency_seconds >= 0.02
    assert first.planned_ops < 50
    assert first.ops == ITERATIONS * first.planned_ops
    # No op is larger than a chunk of the staging ring.
    assert first.all_reduces == first.ops
    assert first.num_bytes == ITERATIONS * NUM_LAYERS * 4 * (16 * 16 + 16)


def train_half_frozen(rank: int) -> tuple[list[str], int, dict[str, torch.Tensor]]:
    """The frozen layer gets values of each rank's own after attaching."""
    torch.manual_seed(0)
    model = mlp()
    model.get_submodule("2").requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, period=1, planner="equal-count", profile_iterations=5)
    nn.init.constant_(model.get_parameter("2.bias"), rank)
    for iteration in range(10):
        if iteration == 8:
            sync._engine.finish()
            sync.stats(reset=True)
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    assert sync.plan is not None
    carried = sorted({sync.plan.layers[segment.layer] for op in sync.plan.ops for segment in op.segments})
    return carried, sync._engine.statistics().num_bytes, model.state_dict()


def test_b7_what_is_frozen_is_not_sent() -> None:
    for rank, (carried, num_bytes, state) in enumerate(run_ranks(train_half_frozen, 2)):
        assert carried == ["0", "4"]
        assert num_bytes == 2 * 4 * (8 * 16 + 16 + 16 * 4 + 4)
        assert torch.equal(state["2.bias"], torch.full((16,), float(rank)))
