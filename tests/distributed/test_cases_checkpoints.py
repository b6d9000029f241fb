"""Trainings that are saved and go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from dreamddp import DreamDDP, Event, EventKind, Link, Op, Plan, Profile, Segment
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan, early_window_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.test_engine_reference import found_profile

State = dict[str, torch.Tensor]
LAYERS = ["0", "2", "4"]


def kept_back_plan(deadlines: list[Event], layers: list[str] = LAYERS) -> Plan:
    """Period 4: layer i from the step of iteration i to a deadline given for layer i."""
    ops = [
        Op([Segment(i)], launch=Event(i, EventKind.after_step), deadline=deadline)
        for i, deadline in enumerate(deadlines)
    ]
    return Plan(planner="by hand", period=4, layers=layers, ops=ops)


HELD = kept_back_plan([Event(i + 1, EventKind.before_step) for i in range(3)])
CARRIED = kept_back_plan([Event(i + 2, EventKind.before_step) for i in range(3)])
CARRIED_TO_FORWARD = kept_back_plan([Event(i + 3, EventKind.before_forward, i) for i in range(3)])
OVERLAPPING = Plan(
    planner="by hand",
    period=1,
    layers=LAYERS,
    ops=[
        Op(
            [Segment(i) for i in range(3)],
            launch=Event(0, EventKind.after_step),
            deadline=Event(2, EventKind.before_forward, 0),
        )
    ],
)
PLANS = {
    "both-windows": both_windows_plan(LAYERS, period=4),
    "early-window": early_window_plan(LAYERS, early="0"),
    "held": HELD,
    "held-with-norm": kept_back_plan([Event(i + 1, EventKind.before_step) for i in range(4)], [*LAYERS, "5"]),
    "carried": CARRIED,
    "carried-to-forward": CARRIED_TO_FORWARD,
    "carried-overlapping": OVERLAPPING,
}


@dataclass(frozen=True)
class Setup:
    optimizer: str = "SGD"
    plan: str | None = None
    planner: str = "balanced"
    profile: str | None = None


@dataclass
class Run:
    state: State
    iteration: int
    ops: list[tuple[str, int]]
    """Name and iteration of what was averaged."""
    in_flight: int
    """Held and carried averages that were under way when the run was saved."""


def build(setup: Setup, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = mlp()
    if setup.optimizer == "AdamW":
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def attach(setup: Setup, model: nn.Module, optimizer: torch.optim.Optimizer, **others: Any) -> DreamDDP:
    if setup.plan is not None:
        return DreamDDP(model, optimizer, plan=PLANS[setup.plan], **others)
    return DreamDDP(
        model,
        optimizer,
        planner=setup.planner,
        period=4,
        profile=None if setup.profile is None else Profile.from_json(setup.profile),
        link=Link(bandwidth_bytes_per_second=1e6),
        profile_iterations=5,
        **others,
    )


def train(
    rank: int, setup: Setup, begin: int, end: int, load_from: str | None, save_to: str | None, seed: int = 0
) -> Run:
    model, optimizer = build(setup, seed)
    sync = attach(setup, model, optimizer)
    if load_from is not None:
        saved = torch.load(f"{load_from}/{rank}.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sync.load_state_dict(saved["sync"])
        assert sync.iteration == begin
    sync.record(100)
    for iteration in range(begin, end):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    in_flight = 0
    if save_to is not None:
        states: dict[str, Any] = {"model": model, "optimizer": optimizer, "sync": sync}
        torch.save({name: source.state_dict() for name, source in states.items()}, f"{save_to}/{rank}.pt")
        in_flight = len(sync._engine.pending())
    sync._engine.finish()
    ops = [(span.name, span.iteration) for span in sync.timeline() if span.kind.name == "link"]
    return Run(model.state_dict(), sync.iteration, ops, in_flight)


def check_resumes_exactly(setup: Setup, folder: Path, in_flight: int = 0) -> None:
    whole = run_ranks(train, 2, setup, 0, 12, None, None)
    begun = run_ranks(train, 2, setup, 0, 6, None, str(folder))
    resumed = run_ranks(train, 2, setup, 6, 12, str(folder), None, 1)
    for uninterrupted, first, second in zip(whole, begun, resumed, strict=True):
        assert first.in_flight == in_flight
        assert second.iteration == uninterrupted.iteration == 12
        assert second.ops == uninterrupted.ops[len(first.ops) :]
        for key, value in uninterrupted.state.items():
            assert torch.equal(value, second.state[key]), key


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_d2_resumes_in_the_middle_of_a_period(optimizer: str, tmp_path: Path) -> None:
    check_resumes_exactly(Setup(optimizer, plan="both-windows"), tmp_path)


@pytest.mark.parametrize(
    ("plan", "in_flight"),
    [
        ("early-window", 0),
        ("held", 1),
        ("carried", 2),
        ("carried-to-forward", 2),
        ("carried-overlapping", 2),
    ],
)
def test_d2_averages_under_way_are_part_of_the_state(plan: str, in_flight: int, tmp_path: Path) -> None:
    check_resumes_exactly(Setup(plan=plan), tmp_path, in_flight)


@pytest.mark.parametrize("planner", ["balanced", "equal-count", "local-sgd"])
def test_d2_plans_of_planners_go_on(planner: str, tmp_path: Path) -> None:
    profile = run_ranks(found_profile, 2, "mlp")[0]
    check_resumes_exactly(Setup("AdamW", planner=planner, profile=profile), tmp_path)


def save_while_measuring(rank: int, folder: str) -> tuple[str, bool]:
    model, optimizer = build(Setup(), 0)
    sync = attach(Setup(planner="equal-count"), model, optimizer)
    for iteration in range(2):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({"model": model.state_dict(), "sync": sync.state_dict()}, f"{folder}/{rank}.pt")
    assert sync.plan is not None
    return sync.plan.planner, sync.profile is None


def resume_while_measuring(rank: int, folder: str) -> list[str]:
    model, optimizer = build(Setup(), 1)
    sync = attach(Setup(planner="equal-count"), model, optimizer)
    saved = torch.load(f"{folder}/{rank}.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    sync.load_state_dict(saved["sync"])
    planners = []
    for iteration in range(2, 12):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        assert sync.plan is not None
        planners.append(sync.plan.planner)
        optimizer.step()
        optimizer.zero_grad()
    sync.finish()
    return planners


def test_d2_saved_while_measuring_measures_again(tmp_path: Path) -> None:
    assert run_ranks(save_while_measuring, 2, str(tmp_path)) == [("local-sgd", True)] * 2
    # Five more iterations are measured, and what is left of the period.
    wanted = ["local-sgd"] * 6 + ["equal-count"] * 4
    assert run_ranks(resume_while_measuring, 2, str(tmp_path)) == [wanted] * 2


def load_before_any_step(rank: int, folder: str) -> bool:
    model, optimizer = build(Setup("AdamW"), 1)
    sync = attach(Setup("AdamW", plan="held"), model, optimizer)
    saved = torch.load(f"{folder}/{rank}.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    sync.load_state_dict(saved["sync"])
    again = sync.state_dict()
    sync._engine.close()
    moments = optimizer.state_dict()["state"]
    assert moments.keys() == saved["optimizer"]["state"].keys() == set(range(6))
    for index, wanted in saved["optimizer"]["state"].items():
        assert moments[index].keys() == wanted.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(moments[index][name], value) for name, value in wanted.items())
    same = all(again[key] == value for key, value in saved["sync"].items() if key != "pending")
    return same and all(torch.equal(v, saved["model"][k]) for k, v in model.state_dict().items())


def test_d4_a_state_that_is_loaded_is_saved_again_as_it_was(tmp_path: Path) -> None:
    run_ranks(train, 2, Setup("AdamW", plan="held"), 0, 6, None, str(tmp_path))
    assert run_ranks(load_before_any_step, 2, str(tmp_path)) == [True, True]


def d4_fresh(rank: int, folder: str) -> dict[str, Any]:
    """Before the first iteration there is no plan yet: the place is all there is to keep."""
    model, optimizer = build(Setup(), 0)
    sync = attach(Setup(plan="both-windows"), model, optimizer, first_iteration=5)
    state = sync.state_dict()
    other_model, other_optimizer = build(Setup(), 0)
    other = attach(Setup(plan="both-windows"), other_model, other_optimizer)
    other.load_state_dict(state)
    return {"iteration": other.iteration, "plan": state["plan"]}


def test_d4_a_state_from_before_the_first_iteration(tmp_path: Path) -> None:
    assert run_ranks(d4_fresh, 2, str(tmp_path)) == [{"iteration": 5, "plan": None}] * 2


def save_inside_an_iteration(rank: int) -> str:
    model, optimizer = build(Setup(), 0)
    sync = attach(Setup(plan="both-windows"), model, optimizer)
    loss_of("mlp", model, batch_for("mlp", rank, 0)).backward()
    with pytest.raises(RuntimeError) as caught:
        sync.state_dict()
    optimizer.step()
    sync.state_dict()
    return str(caught.value)


def test_a_state_inside_an_iteration_is_refused() -> None:
    assert "Save behind optimizer.step()" in run_ranks(save_inside_an_iteration, 2)[0]


def train_with_distributed_checkpoint(rank: int, folder: str, begin: int, end: int, save: bool) -> State:
    model, optimizer = build(Setup("AdamW"), begin)
    sync = attach(Setup("AdamW", plan="carried"), model, optimizer)
    if begin > 0:
        states: dict[str, Any] = {
            f"rank {rank}": {
                "model": model.state_dict(),
                "optimizer": get_optimizer_state_dict(model, optimizer),
                "sync": sync.state_dict(),
            }
        }
        state_dict_loader.load(states, checkpoint_id=folder)
        mine = states[f"rank {rank}"]
        model.load_state_dict(mine["model"])
        set_optimizer_state_dict(model, optimizer, mine["optimizer"])
        sync.load_state_dict(mine["sync"])
    for iteration in range(begin, end):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    if save:
        saved = {
            "model": model.state_dict(),
            "optimizer": get_optimizer_state_dict(model, optimizer),
            "sync": sync.state_dict(),
        }
        state_dict_saver.save({f"rank {rank}": saved}, checkpoint_id=folder)
    sync._engine.finish()
    dist.barrier()
    return model.state_dict()


def test_d2_torch_distributed_checkpoint(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    whole = run_ranks(train_with_distributed_checkpoint, 2, folder, 0, 12, False)
    run_ranks(train_with_distributed_checkpoint, 2, folder, 0, 6, True)
    resumed = run_ranks(train_with_distributed_checkpoint, 2, folder, 6, 12, False)
    for first, second in zip(whole, resumed, strict=True):
        assert all(torch.equal(value, second[key]) for key, value in first.items())
