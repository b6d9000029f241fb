"""What does not go together with steps inside the backward is refused, and says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, Link, Profile
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.test_fused_update import MLP_PLAN

Between = Callable[[nn.Module, torch.optim.Optimizer], object]


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def attach(model: nn.Module, optimizer: torch.optim.Optimizer, **arguments: Any) -> DreamDDP:
    usual: dict[str, Any] = {"plan": MLP_PLAN, "fused_update": True, "timeout": 20.0}
    return DreamDDP(model, optimizer, **usual | arguments)


def clip(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1e6)  # none of them is that long


def clip_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 1e6)


def edit(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    gradient = model.get_parameter("2.bias").grad
    assert gradient is not None
    gradient[0] = 1.0


def replace(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    gradient = model.get_parameter("2.bias").grad
    assert gradient is not None
    model.get_parameter("2.bias").grad = gradient.clone()


def drop(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.get_parameter("2.bias").grad = None


def empty(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=False)


CHANGES: dict[str, tuple[Between, str]] = {
    "clip_grad_norm_": (clip, "0.weight"),
    "clip_grad_value_": (clip_values, "0.weight"),
    "edit": (edit, "2.bias"),
    "replace": (replace, "2.bias"),
    "drop": (drop, "2.bias"),
    "zero_grad": (empty, "0.weight"),
}


def change_gradients(rank: int, name: str, first: int) -> str:
    """In the first iteration, whose reads are watched, or in the third one."""
    model, optimizer = build()
    attach(model, optimizer)
    for iteration in range(3):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        if iteration == first:
            CHANGES[name][0](model, optimizer)
            with pytest.raises(RuntimeError) as raised:
                optimizer.step()
            return str(raised.value)
        optimizer.step()
        optimizer.zero_grad()
    raise AssertionError("not reached")


@pytest.mark.parametrize("name", sorted(CHANGES))
@pytest.mark.parametrize("first", [0, 2])
def test_c4_gradients_that_change_behind_the_backward_are_an_error(name: str, first: int) -> None:
    for text in run_ranks(change_gradients, 2, name, first):
        assert f"the gradient of parameter '{CHANGES[name][1]}' has changed between its backward" in text
        assert "SGD.step()" in text
        assert "Leave out what changes gradients behind the backward (clip_grad_norm_" in text
        assert "attach with fused_update=False" in text


def measure_gradients(rank: int) -> None:
    model, optimizer = build()
    attach(model, optimizer)
    for iteration in range(3):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert nn.utils.get_total_norm(gradients) > 0
        optimizer.step()
        optimizer.zero_grad()


def test_gradients_may_be_looked_at() -> None:
    run_ranks(measure_gradients, 2)


def bring_new_gradient(rank: int) -> None:
    model, optimizer = build()
    attach(model, optimizer)
    for iteration in range(2):
        loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))
        inputs = [p for name, p in model.named_parameters() if name != "4.bias" or iteration == 0]
        loss.backward(inputs=inputs)
        if iteration == 1:
            model.get_parameter("4.bias").grad = torch.ones(4)
            with pytest.raises(
                RuntimeError, match=re.escape("the gradient of parameter '4.bias' has changed")
            ):
                optimizer.step()
            return
        optimizer.step()
        optimizer.zero_grad()


def test_a_gradient_that_comes_behind_the_backward_is_an_error() -> None:
    run_ranks(bring_new_gradient, 2)


def scale(rank: int, kind: str) -> str:
    model, _ = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=kind == "fused")
    attach(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0 if kind == "one" else 4.0)
    scaler.scale(loss_of("mlp", model, batch_for("mlp", rank, 0))).backward()
    with pytest.raises(RuntimeError) as raised:
        scaler.step(optimizer)
    return str(raised.value)


@pytest.mark.parametrize("kind", ["plain", "one", "fused"])
def test_a_loss_scaler_is_an_error(kind: str) -> None:
    for text in run_ranks(scale, 2, kind):
        assert "a GradScaler" in text
        assert "attach with fused_update=False" in text


def overflow(rank: int) -> None:
    model, optimizer = build()
    attach(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    loss = loss_of("mlp", model, batch_for("mlp", rank, 0)) * torch.inf
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # it finds out that it must not
    with pytest.raises(RuntimeError, match="no step\\(\\) of all optimizers has followed"):
        model(batch_for("mlp", rank, 1)[0])


def accumulate_without_no_sync(rank: int) -> None:
    model, optimizer = build()
    attach(model, optimizer)
    loss_of("mlp", model, batch_for("mlp", rank, 0)).backward()
    with pytest.raises(RuntimeError, match="Put all but the last backward of an iteration under no_sync"):
        loss_of("mlp", model, batch_for("mlp", rank, 1)).backward()


@pytest.mark.parametrize("function", [overflow, accumulate_without_no_sync])
def test_a_step_that_does_not_come_is_an_error(function: Callable[[int], None]) -> None:
    run_ranks(function, 2)


def step_with_closure(rank: int) -> None:
    model, optimizer = build()
    attach(model, optimizer)

    def closure() -> float:
        loss = loss_of("mlp", model, batch_for("mlp", rank, 0))
        loss.backward()
        return float(loss)

    with pytest.raises(RuntimeError, match=re.escape("SGD.step() was called with a closure")):
        optimizer.step(closure)


def test_a_closure_is_an_error() -> None:
    run_ranks(step_with_closure, 2)


class NeedsClosure(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        return closure()


class CountsInGroups(torch.optim.Optimizer):
    """Its step size depends on how often step() was called."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"count": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["count"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1 / group["count"])


def step_counter(rank: int) -> None:
    model, _ = build()
    optimizer = CountsInGroups(model.parameters())
    attach(model, optimizer)
    loss = loss_of("mlp", model, batch_for("mlp", rank, 0))
    with pytest.raises(RuntimeError, match="CountsInGroups changes 'count' of its param_groups in a step"):
        loss.backward()
    assert optimizer.param_groups[0]["params"] == list(model.parameters())


def test_an_optimizer_that_counts_its_steps_is_an_error() -> None:
    run_ranks(step_counter, 2)


ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "gradients": (
        {"plan": None, "planner": "wfbp"},
        "planner with fused_update: got 'wfbp'; expected one of local-sgd, equal-count, dreamddp, balanced",
    ),
    "sequential": ({"plan": None, "planner": "sequential"}, "planner with fused_update: got 'sequential'"),
    "plan for steps": (
        {"plan": both_windows_plan(["0", "2", "4"], 2)},
        'plan with fused_update: got one for steps behind the backward; expected one with "update": "fused"',
    ),
    "fused plan": ({"fused_update": False}, 'plan: got one with "update": "fused"'),
}


def attach_badly(rank: int, name: str) -> None:
    model, optimizer = build()
    arguments, text = ARGUMENTS[name]
    with pytest.raises(ValueError, match=re.escape(text)):
        attach(model, optimizer, **arguments)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_arguments_that_do_not_fit_are_an_error(name: str) -> None:
    run_ranks(attach_badly, 2, name)


def attach_optimizers(rank: int) -> None:
    model, _ = build()
    with pytest.raises(ValueError, match="NeedsClosure, whose step\\(\\) needs a closure"):
        attach(model, NeedsClosure(model.parameters()))
    with pytest.raises(ValueError, match="got LBFGS"):
        attach(model, torch.optim.LBFGS(model.parameters()))


def test_optimizers_with_closures_are_an_error() -> None:
    run_ranks(attach_optimizers, 2)


def join(rank: int) -> None:
    model, optimizer = build()
    sync = attach(model, optimizer)
    with pytest.raises(ValueError, match="join\\(\\): got fused_update=True"), sync.join():
        pass


def test_join_is_an_error() -> None:
    run_ranks(join, 2)


def attach_differently(rank: int) -> None:
    model, optimizer = build()
    profile, link = Profile.from_json(PROFILE), Link(bandwidth_bytes_per_second=1e6, workers=2)
    with pytest.raises(ValueError, match="fused_update"):
        attach(model, optimizer, plan=None, profile=profile, link=link, fused_update=rank == 0)


PROFILE = """{"format": "dreamddp-profile/1", "time_unit": "ms", "layers": [
    {"name": "0", "forward": 1, "backward": 1, "num_bytes": 4},
    {"name": "2", "forward": 1, "backward": 1, "num_bytes": 4},
    {"name": "4", "forward": 1, "backward": 1, "num_bytes": 4}]}"""


def test_ranks_must_agree() -> None:
    run_ranks(attach_differently, 2)
