"""Means are exact at all numbers of ranks and sizes, and do not depend on how ops are merged and split."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dreamddp import DreamDDP, Event, EventKind, Op, Plan, Segment
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan, whole_backward_plan
from tests.distributed.ranks import run_ranks

State = dict[str, torch.Tensor]
SIZES = (1, 2, 7)


class Sized(nn.Module):
    """One layer for each size."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ParameterList([nn.Parameter(torch.zeros(size))]) for size in SIZES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([(x * p).sum() for p in self.parameters()]).sum()


def average_sizes(rank: int, members: list[int]) -> list[list[list[float]]]:
    """What a plan with halves in both windows makes of the ranks' own values, and what finish() does."""
    group = dist.new_group(members)
    if rank not in members:
        return []
    model = Sized()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    plan = both_windows_plan([f"layers.{i}" for i in range(len(SIZES))], period=1)
    sync = DreamDDP(model, optimizer, plan=plan, process_group=group)
    own = 3.0 * members.index(rank)
    results = []
    for uses_plan in (True, False):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.arange(parameter.numel()) + own)
        if uses_plan:
            for _ in range(2):
                model(torch.ones(1)).backward()
                optimizer.step()
            sync._engine.finish()
        else:
            sync.finish()
        results.append([parameter.tolist() for parameter in model.parameters()])
    return results


@pytest.mark.parametrize(
    ("world_size", "members"), [(1, [0]), (3, [0, 1, 2]), (4, [1, 2, 3]), (4, [0, 2, 3]), (4, [0, 1, 2, 3])]
)
def test_h1_small_sizes_and_subgroups_have_the_exact_mean(world_size: int, members: list[int]) -> None:
    results = run_ranks(average_sizes, world_size, members)
    mean = 3.0 * (len(members) - 1) / 2
    wanted = [[index + mean for index in range(size)] for size in SIZES]
    for rank, result in enumerate(results):
        assert result == ([wanted, wanted] if rank in members else [])


def average_large_halves(rank: int) -> list[float]:
    model = nn.ParameterList([nn.Parameter(torch.zeros(3, dtype=torch.float16))])
    sync = DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.0))
    with torch.no_grad():
        model[0].fill_(40000.0)
    sync.finish()
    return list(model[0].tolist())


@pytest.mark.parametrize("world_size", [2, 3])
def test_h2_large_halves_do_not_overflow(world_size: int) -> None:
    assert run_ranks(average_large_halves, world_size) == [[40000.0] * 3] * world_size


def attach_with_own_seed(rank: int) -> State:
    torch.manual_seed(rank)
    norm = nn.BatchNorm1d(16)
    assert norm.running_mean is not None
    norm.running_mean.normal_()
    model = nn.Sequential(nn.Linear(8, 16), norm, nn.Linear(16, 4).to(torch.float64))
    sync = DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1))
    sync.detach()
    return model.state_dict()


@pytest.mark.parametrize("world_size", [2, 3])
def test_h4_ranks_are_equal_after_attaching(world_size: int) -> None:
    first, *others = run_ranks(attach_with_own_seed, world_size)
    for other in others:
        for key, value in first.items():
            assert torch.equal(value, other[key]), key


LAYERS = ["0", "2", "4"]


def split_plan(parts: int) -> Plan:
    """Each layer in ops of its own, in the backward window."""
    return Plan(
        planner="by hand",
        period=1,
        layers=LAYERS,
        ops=[
            Op(
                [Segment(layer, part / parts, (part + 1) / parts)],
                launch=Event(0, EventKind.after_backward, layer),
                deadline=Event(0, EventKind.before_step),
            )
            for layer in reversed(range(len(LAYERS)))
            for part in range(parts)
        ],
    )


MERGED = whole_backward_plan(LAYERS)


def train_merged_or_split(rank: int, plan: Plan, staging_bytes: int) -> tuple[State, int]:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=plan, staging_bytes=staging_bytes)
    for iteration in range(10):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    return model.state_dict(), sync._engine.statistics().ops


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_h6_merging_and_splitting_change_nothing_that_matters(world_size: int) -> None:
    merged = run_ranks(train_merged_or_split, world_size, MERGED, 1 << 20)
    for plan, staging_bytes, ops in (
        (MERGED, 1 << 10, 10),
        (split_plan(1), 1 << 20, 30),
        (split_plan(3), 1 << 10, 90),
    ):
        states = run_ranks(train_merged_or_split, world_size, plan, staging_bytes)
        for (state, num_ops), (wanted, _) in zip(states, merged, strict=True):
            assert num_ops == ops
            for key, value in wanted.items():
                assert torch.allclose(state[key], value, rtol=0, atol=1e-6), key
