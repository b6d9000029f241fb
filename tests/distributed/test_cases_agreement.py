"""Order and agreement: ranks that differ are told so before any data moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from dreamddp import DreamDDP, LastRead, LastReadKind, Layer, OpMode, Profile
from dreamddp._core import op_mode, validate_plan
from tests.distributed.models import batch_for, mlp
from tests.distributed.plans import (
    both_windows_plan,
    early_window_plan,
    forward_window_plan,
    whole_backward_plan,
)
from tests.distributed.ranks import run_ranks

Outcome = tuple[str, str]


def raised_by(call: Callable[[], object]) -> Outcome:
    """Type and text of the exception; the rank fails where there is none."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError("nothing was raised")


def attach_one_step_ahead(rank: int) -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return raised_by(lambda: DreamDDP(model, optimizer, period=2, first_iteration=rank))


def test_a1_ranks_that_start_at_different_steps_raise() -> None:
    for kind, text in run_ranks(attach_one_step_ahead, 2):
        assert kind == "ValueError"
        assert "step to start from" in text
        assert "layer '0'" in text
        assert "0 on rank 0 and 1 on rank 1" in text


@dataclass
class PlannedRun:
    plan: str
    ops: list[tuple[str, int]]
    """Name and iteration of what was averaged, in the order of the lane."""


def launched_ops(rank: int) -> list[PlannedRun]:
    """With a plan by hand, and with one that a planner makes from a measured profile."""
    runs = []
    by_hand = both_windows_plan([str(i) for i in range(12)], period=4)
    for options in ({"plan": by_hand}, {"period": 4, "profile_iterations": 5}):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        sync = DreamDDP(model, optimizer, **options)
        sync.record(100)
        for _ in range(20):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
        sync._engine.finish()
        assert sync.plan is not None
        ops = [(span.name, span.iteration) for span in sync.timeline() if span.name.startswith("op ")]
        runs.append(PlannedRun(sync.plan.to_json(), ops))
        sync.detach()
    return runs


def test_a2_hash_seeds_do_not_change_the_order_of_ops() -> None:
    first, *others = run_ranks(launched_ops, 4, env=lambda rank: {"PYTHONHASHSEED": str(17 * rank)})
    by_hand, planned = first
    # 20 iterations of 6 ops.
    labels = [f"op {i}" for i in range(24)]
    assert [name.partition(":")[0] for name, _ in by_hand.ops] == labels * 5
    assert len(planned.ops) >= 5
    assert '"planner": "balanced"' in planned.plan
    assert all(other == first for other in others)


def attach_other_shapes(rank: int) -> Outcome:
    model = nn.Sequential(nn.Linear(16, 16 if rank == 0 else 4))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outcome = raised_by(lambda: DreamDDP(model, optimizer, plan=both_windows_plan(["0"], period=1)))
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    return outcome


def test_a3_ranks_with_other_shapes_raise() -> None:
    for kind, text in run_ranks(attach_other_shapes, 2):
        assert kind == "ValueError"
        assert "layer '0'" in text
        assert "(16, 16)" in text
        assert "(4, 16)" in text


def attach_other_plans(rank: int) -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = both_windows_plan(["0", "2", "4"], period=1 + rank)
    return raised_by(lambda: DreamDDP(model, optimizer, plan=plan))


def test_ranks_with_other_plans_raise() -> None:
    for kind, text in run_ranks(attach_other_plans, 2):
        assert kind == "ValueError"
        assert "plan is" in text


def attach_bad_argument_on_one_rank(rank: int) -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return raised_by(lambda: DreamDDP(model, optimizer, period=0 if rank == 1 else 2))


def test_a_bad_argument_on_one_rank_is_an_error_on_all() -> None:
    (kind, text), (own_kind, own_text) = run_ranks(attach_bad_argument_on_one_rank, 2)
    assert kind == own_kind == "ValueError"
    assert "rank 1" in text
    assert "period: got 0" in text
    assert "period: got 0" in own_text


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 16)
        self.a = nn.Linear(16, 4)
        self.b = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, branch: str) -> torch.Tensor:
        y: torch.Tensor = getattr(self, branch)(torch.relu(self.stem(x)))
        return y


@dataclass
class BranchRun:
    ops: list[tuple[str, int]]
    state: dict[str, torch.Tensor]


def train_own_branch(rank: int) -> BranchRun:
    torch.manual_seed(0)
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(["stem", "a", "b"], period=1))
    sync.record(100)
    for iteration in range(10):
        inputs, targets = batch_for("mlp", rank, iteration)
        nn.functional.cross_entropy(model(inputs, "ab"[rank]), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync.finish()
    ops = [(span.name, span.iteration) for span in sync.timeline() if span.name.startswith("op ")]
    return BranchRun(ops, model.state_dict())


def test_a5_layers_that_did_not_come_join_in_plan_order() -> None:
    first, second = run_ranks(train_own_branch, 2)
    assert first.ops == second.ops
    # Layers 2, 1, 0 in the backward window and 0, 1, 2 in the forward window, in every iteration.
    planned = [f"op {op}: '{layer}'" for op, layer in enumerate(["b", "a", "stem", "stem", "a", "b"])]
    assert first.ops == [(name, iteration) for iteration in range(10) for name in planned]
    for key, value in first.state.items():
        assert torch.equal(value, second.state[key]), key


def test_the_plans_of_these_tests_are_valid() -> None:
    early = Layer("a", num_bytes=4, last_read=LastRead(LastReadKind.forward))
    a, b = Layer("a", num_bytes=4), Layer("b", num_bytes=4)
    validate_plan(both_windows_plan(["a", "b"], period=2), Profile([a, b]))
    validate_plan(forward_window_plan(["a", "b"]), Profile([a, b]))
    validate_plan(whole_backward_plan(["a", "b"]), Profile([a, b]))
    plan = early_window_plan(["a", "b"], early="a")
    validate_plan(plan, Profile([early, b]))
    assert [op_mode(op, Profile([early, b])) for op in plan.ops] == [OpMode.in_place] * 2
