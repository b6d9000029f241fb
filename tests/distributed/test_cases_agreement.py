"""Order and agreement: ranks that differ are told so before any data moves."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dreamddp import DreamDDP, LastRead, LastReadKind, Layer, OpMode, Profile
from dreamddp._core import op_mode, validate_plan
from tests.distributed.models import batch_for, loss_of, mlp
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


def launched_ops(rank: int) -> list[tuple[str, int]]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan([str(i) for i in range(12)], period=4))
    sync.record(20)
    for _ in range(20):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    sync._engine.finish()
    return [(span.name, span.iteration) for span in sync.timeline() if span.name.startswith("op ")]


def test_a2_hash_seeds_do_not_change_the_order_of_ops() -> None:
    sequences = run_ranks(launched_ops, 4, env=lambda rank: {"PYTHONHASHSEED": str(rank)})
    assert len(sequences[0]) >= 4 * 12
    assert all(sequence == sequences[0] for sequence in sequences)


def attach_other_shapes(rank: int) -> Outcome:
    model = nn.Sequential(nn.Linear(16, 16 if rank == 0 else 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return raised_by(lambda: DreamDDP(model, optimizer, plan=both_windows_plan(["0"], period=1)))


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
    sync.record(10)
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
    assert len(first.ops) >= 27
    for key, value in first.state.items():
        assert torch.equal(value, second.state[key]), key


def vanish_after_attaching(rank: int) -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(["0", "2", "4"], period=1), timeout=5)
    if rank == 1:
        os._exit(0)

    def train() -> None:
        for iteration in range(4):
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
        sync.finish()

    return raised_by(train)


def test_e1_a_rank_that_exits_is_an_error_on_the_other() -> None:
    kind, text = run_ranks(vanish_after_attaching, 2, timeout=30, may_vanish=[1])[0]
    assert kind == "SyncError"
    assert "peer" in text


def sleep_in_a_step(rank: int, folder: str) -> tuple[Outcome, str]:
    """The exception, and what was written to standard error meanwhile."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(["0", "2", "4"], period=1), timeout=3)

    def train() -> None:
        for iteration in range(4):
            if rank == 1 and iteration == 2:
                time.sleep(6)
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
        sync.finish()

    path = Path(folder) / f"errors{rank}"
    with path.open("wb") as file:
        errors = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            outcome = raised_by(train)
        finally:
            os.dup2(errors, 2)
    return outcome, path.read_text()


def test_e2_a_late_rank_is_a_warning_and_then_an_error(tmp_path: Path) -> None:
    ((kind, text), errors), ((other_kind, _), _) = run_ranks(sleep_in_a_step, 2, str(tmp_path), timeout=40)
    assert kind == other_kind == "SyncError"
    assert re.search(r"rank 0: averaging '4' \(op 0 of the plan, step 2\) failed after 3\.?\d* s", text)
    # Not more than once for one transfer that is late.
    assert len(re.findall(r"rank 0 has been averaging '4' .* half of the timeout", errors)) == 1


def average_sizes(rank: int, members: int) -> list[float]:
    group = dist.new_group(list(range(members)))
    if rank >= members:
        return []
    model = nn.ParameterList([nn.Parameter(torch.full((size,), float(rank))) for size in (1, 2, 7)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with torch.no_grad():
        sync = DreamDDP(model, optimizer, process_group=group)
        for parameter in model:
            parameter.fill_(float(rank + 1))
    sync.finish()
    return [value for parameter in model for value in parameter.tolist()]


@pytest.mark.parametrize("world_size", [3, 4])
def test_h1_small_sizes_at_three_ranks_and_in_a_subgroup(world_size: int) -> None:
    results = run_ranks(average_sizes, world_size, 3)
    assert all(result == [2.0] * 10 for result in results[:3])


def attach_with_own_seed(rank: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(rank)
    norm = nn.BatchNorm1d(16)
    assert norm.running_mean is not None
    norm.running_mean.normal_()
    model = nn.Sequential(nn.Linear(8, 16), norm, nn.Linear(16, 4).to(torch.float64))
    sync = DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1))
    sync.detach()
    return model.state_dict()


def test_h4_ranks_are_equal_after_attaching() -> None:
    first, second = run_ranks(attach_with_own_seed, 2)
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def test_the_plans_of_these_tests_are_valid() -> None:
    early = Layer("a", num_bytes=4, last_read=LastRead(LastReadKind.forward))
    a, b = Layer("a", num_bytes=4), Layer("b", num_bytes=4)
    validate_plan(both_windows_plan(["a", "b"], period=2), Profile([a, b]))
    validate_plan(forward_window_plan(["a", "b"]), Profile([a, b]))
    validate_plan(whole_backward_plan(["a", "b"]), Profile([a, b]))
    plan = early_window_plan(["a", "b"], early="a")
    validate_plan(plan, Profile([early, b]))
    assert [op_mode(op, Profile([early, b])) for op in plan.ops] == [OpMode.in_place] * 2
