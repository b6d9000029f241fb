"""Whoever reads or writes parameters while averages are in flight waits, whatever the loop looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, Plan
from tests.distributed.emulated_ranks import emulated_ranks
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan, forward_window_plan, whole_backward_plan
from tests.distributed.ranks import run_ranks

State = dict[str, torch.Tensor]
LAYERS = ["0", "2", "4"]
LATENCY_SECONDS = 0.2  # of every chunk: whoever does not wait is sure to come too early


def start(plan: Plan) -> tuple[nn.Module, torch.optim.Optimizer, DreamDDP]:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, DreamDDP(model, optimizer, plan=plan)


def train(rank: int, folder: str, with_closure: bool) -> tuple[State, int]:
    with emulated_ranks(rank, 2, Path(folder), latency=LATENCY_SECONDS):
        model, optimizer, sync = start(both_windows_plan(LAYERS, period=2))
        for iteration in range(5):

            def closure(iteration: int = iteration) -> float:
                optimizer.zero_grad()
                loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))
                loss.backward()
                return float(loss)

            if with_closure:
                loss = optimizer.step(closure)
                assert isinstance(loss, float)
            else:
                closure()
                optimizer.step()
        sync._engine.finish()
        return model.state_dict(), sync.iteration


def test_a_closure_trains_like_a_plain_loop(tmp_path: Path) -> None:
    results = []
    for with_closure in (False, True):
        folder = tmp_path / str(with_closure)
        folder.mkdir()
        results.append(run_ranks(train, 2, str(folder), with_closure, init=False))
    for (plain, plain_iteration), (state, iteration) in zip(*results, strict=True):
        assert iteration == plain_iteration == 5
        for key, value in plain.items():
            assert torch.equal(state[key], value), key


class Repeating(torch.optim.SGD):
    """Evaluates the loss twice a step, as line searches do."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        assert callable(closure)
        closure()
        closure()


def test_an_optimizer_that_repeats_its_closure_is_refused() -> None:
    assert all(run_ranks(refuse, 2))


def refuse(rank: int) -> bool:
    model = mlp()
    inputs, targets = batch_for("mlp", rank, 0)
    optimizer = Repeating(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=whole_backward_plan(LAYERS))

    def closure() -> None:
        loss_of("mlp", model, (inputs, targets)).backward()

    with pytest.raises(RuntimeError, match="Repeating calls the closure of a step more than once"):
        optimizer.step(closure)
    sync.detach()
    with pytest.raises(ValueError, match="optimizer: got LBFGS; expected one that evaluates the loss once"):
        DreamDDP(model, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(ValueError, match="optimizer: got SGD without parameters of the model"):
        DreamDDP(model, torch.optim.SGD(mlp().parameters(), lr=0.1))
    return True


def save_while_in_flight(rank: int, folder: str) -> list[tuple[State, State]]:
    """The state right after each step, and when everything has arrived."""
    with emulated_ranks(rank, 2, Path(folder), latency=LATENCY_SECONDS):
        model, optimizer, sync = start(forward_window_plan(LAYERS))
        states = []
        for iteration in range(3):
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()
            whole = {key: value.clone() for key, value in model.state_dict().items()}
            part = {f"4.{key}": value.clone() for key, value in model.get_submodule("4").state_dict().items()}
            assert all(torch.equal(whole[key], value) for key, value in part.items())
            sync._engine.finish()
            states.append((whole, {key: value.clone() for key, value in model.state_dict().items()}))
        return states


def test_d1_state_dict_waits_for_averages_in_flight(tmp_path: Path) -> None:
    first, second = run_ranks(save_while_in_flight, 2, str(tmp_path), init=False)
    for (early, late), (other, _) in zip(first, second, strict=True):
        for key, value in early.items():
            assert torch.equal(value, late[key]), key
            assert torch.equal(value, other[key]), key
