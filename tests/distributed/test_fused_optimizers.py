"""Optimizers under fused updates that do more than step their parameters: refused, never silently wrong."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP
from tests.distributed.models import batch_for, loss_of
from tests.distributed.ranks import run_ranks
from tests.distributed.test_fused_refusals import attach, build


def iterate(rank: int, model: nn.Module, iteration: int) -> None:
    loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()


def step(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int) -> None:
    iterate(rank, model, iteration)
    optimizer.step()
    optimizer.zero_grad()


def change_a_setting(rank: int) -> str:
    model, optimizer = build()
    attach(model, optimizer)
    step(rank, model, optimizer, 0)
    iterate(rank, model, 1)
    optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(RuntimeError) as raised:
        optimizer.step()
    return str(raised.value)


def test_a_setting_that_changes_behind_the_backward_is_an_error() -> None:
    for text in run_ranks(change_a_setting, 2):
        assert "'lr' of the optimizer's param_groups has changed between a backward and SGD.step()" in text
        assert "Set it before the backward" in text


def hook_that(kind: str, model: nn.Module) -> Callable[..., None]:
    def clip(*_: Any) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    def replace(*_: Any) -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)

    return clip if kind == "clips" else replace


def register_late(rank: int, kind: str) -> str:
    model, optimizer = build()
    attach(model, optimizer)
    step(rank, model, optimizer, 0)
    optimizer.register_step_pre_hook(hook_that(kind, model))
    iterate(rank, model, 1)
    with pytest.raises(RuntimeError) as raised:
        optimizer.step()
    return str(raised.value)


@pytest.mark.parametrize("kind", ["clips", "replaces"])
def test_hooks_of_the_optimizer_that_change_gradients_are_an_error(kind: str) -> None:
    for text in run_ranks(register_late, 2, kind):
        assert "the gradient of parameter '0.weight' has changed between its backward and SGD.step()" in text


class OwnCounter(torch.optim.SGD):
    count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        return super().step(closure)


class StateCounter(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        state: Any = self.state
        state["count"] = state["count"] + 1 if "count" in state else 1
        return super().step(closure)


class TensorCounter(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group.setdefault("count", torch.zeros(())).add_(1)
        return super().step(closure)


def count_in(rank: int, kind: type[torch.optim.SGD]) -> str:
    model, _ = build()
    optimizer = kind(model.parameters(), lr=0.1)
    for group in optimizer.param_groups:
        if kind is TensorCounter:
            group["count"] = torch.zeros(())
    attach(model, optimizer)
    with pytest.raises(RuntimeError) as raised:
        step(rank, model, optimizer, 0)
    return str(raised.value)


@pytest.mark.parametrize("kind", [OwnCounter, StateCounter, TensorCounter])
def test_counters_outside_the_state_of_parameters_are_an_error(kind: type[torch.optim.SGD]) -> None:
    for text in run_ranks(count_in, 2, kind):
        assert f"{kind.__name__} changes 'count'" in text
        assert "makes one for each layer" in text


class Raises(torch.optim.SGD):
    fails = False

    def step(self, closure: Any = None) -> Any:
        if self.fails and any(p.shape == (16, 16) for g in self.param_groups for p in g["params"]):
            raise ValueError("out of luck")
        return super().step(closure)


def raise_in_a_step(rank: int) -> str:
    model, _ = build()
    optimizer = Raises(model.parameters(), lr=0.1)
    attach(model, optimizer)
    step(rank, model, optimizer, 0)
    optimizer.fails = True
    with pytest.raises(ValueError, match="out of luck"):
        iterate(rank, model, 1)
    optimizer.fails = False
    optimizer.zero_grad()
    with pytest.raises(RuntimeError) as raised:
        iterate(rank, model, 2)
    return str(raised.value)


def test_half_an_update_is_not_gone_on_from() -> None:
    for text in run_ranks(raise_in_a_step, 2):
        assert "an optimizer raised in layer '2' (ValueError: out of luck)" in text
        assert "Go on from a checkpoint" in text


def detach_in_between(rank: int) -> str:
    model, optimizer = build()
    sync = attach(model, optimizer)
    step(rank, model, optimizer, 0)
    iterate(rank, model, 1)
    with pytest.raises(RuntimeError) as raised:
        sync.detach()
    optimizer.step()
    sync.detach()
    return str(raised.value)


def test_detaching_between_backward_and_step_is_an_error() -> None:
    for text in run_ranks(detach_in_between, 2):
        assert "Call it behind optimizer.step()" in text


def forget(rank: int, fused: bool) -> bool:
    model, optimizer = build()
    sync = attach(model, optimizer) if fused else DreamDDP(model, optimizer, period=2, planner="local-sgd")
    for iteration in range(3):
        step(rank, model, optimizer, iteration)
    sync.finish()
    kept = weakref.ref(model)
    del model, optimizer, sync
    gc.collect()
    return kept() is None


@pytest.mark.parametrize("fused", [False, True])
def test_nothing_keeps_a_model_that_its_user_has_dropped(fused: bool) -> None:
    assert run_ranks(forget, 2, fused) == [True, True]
