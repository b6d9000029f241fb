"""Whoever reads or writes parameters while averages are in flight waits, whatever the loop looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.utils._python_dispatch
from torch import nn
from torch.nn import functional

from dreamddp import DreamDDP, Plan
from dreamddp._runtime import Engine
from tests.distributed.emulated_ranks import emulated_ranks
from tests.distributed.models import MODELS, batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan, forward_window_plan, whole_backward_plan
from tests.distributed.ranks import run_ranks

State = dict[str, torch.Tensor]
LAYERS = ["0", "2", "4"]
LATENCY_SECONDS = 0.1  # of every chunk: whoever does not wait is sure to come too early


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
            assert sync.state_dict()["iteration"] == sync.iteration == iteration + 1
            sync._engine.finish()
            states.append((whole, {key: value.clone() for key, value in model.state_dict().items()}))
        return states


def test_d1_state_dict_waits_for_averages_in_flight(tmp_path: Path) -> None:
    first, second = run_ranks(save_while_in_flight, 2, str(tmp_path), init=False)
    for (early, late), (other, _) in zip(first, second, strict=True):
        for key, value in early.items():
            assert torch.equal(value, late[key]), key
            assert torch.equal(value, other[key]), key


class Encoder(nn.Module):
    """Has an entry of its own besides its forward; a parent reads the weight of `head`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()
        self.head = nn.Linear(4, 4, bias=False)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.encode(x), self.head.weight)


ENCODER_LAYERS = ["layers.0", "layers.2", "layers.4", "head"]


def read_while_in_flight(rank: int, folder: str, reader: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a reader sees right after each step, and when everything has arrived."""
    with emulated_ranks(rank, 2, Path(folder), latency=LATENCY_SECONDS):
        torch.manual_seed(0)
        model = Encoder()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = DreamDDP(model, optimizer, plan=forward_window_plan(ENCODER_LAYERS))
        inputs = torch.ones(2, 8)

        def read() -> torch.Tensor:
            if reader == "encode":
                return model.encode(inputs).detach()
            if reader == "encode without gradients":
                with torch.no_grad():
                    return model.encode(inputs)
            if reader == "forward":
                with torch.no_grad():
                    y: torch.Tensor = model(inputs)
                return y
            sync.wait()
            return functional.linear(torch.ones(4), model.head.weight.detach())

        results = []
        for iteration in range(4):
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()
            early = read()
            sync._engine.finish()
            results.append((early, read()))
        assert sync.iteration == 4
        return results


@pytest.mark.parametrize("reader", ["encode", "encode without gradients", "forward", "wait"])
def test_b2_readers_wait_for_averages_in_flight(reader: str, tmp_path: Path) -> None:
    first, second = run_ranks(read_while_in_flight, 2, str(tmp_path), reader, init=False)
    for (early, late), (other, _) in zip(first, second, strict=True):
        assert torch.equal(early, late)
        assert torch.equal(early, other)


READS: dict[str, Callable[[nn.Linear, torch.Tensor], torch.Tensor]] = {
    "linear": lambda head, kept_view: functional.linear(torch.ones(4), head.weight).detach(),
    "data": lambda head, kept_view: head.weight.data.add(0),
    "kept view": lambda head, kept_view: kept_view.clone(),
    "list": lambda head, kept_view: torch.tensor(head.weight.tolist()),
    "numpy": lambda head, kept_view: torch.from_numpy(head.weight.detach().numpy().copy()),
    "foreach": lambda head, kept_view: torch._foreach_mul([kept_view], 1.0)[0],
    "cat": lambda head, kept_view: nn.utils.parameters_to_vector(head.parameters()).detach(),
}


def read_by_itself(rank: int, folder: str) -> list[tuple[str, torch.Tensor, torch.Tensor, list[str]]]:
    """Per iteration a read in a way of its own, right after the step and when everything has arrived; and the
    layers that zeroing gradients and looking at sizes waited for."""
    with emulated_ranks(rank, 2, Path(folder), latency=LATENCY_SECONDS):
        torch.manual_seed(0)
        model = Encoder()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = DreamDDP(model, optimizer, plan=forward_window_plan(ENCODER_LAYERS))
        kept_view = model.head.weight.detach()[1:]
        results = []
        with sync.waiting_reads():
            for iteration, (name, read) in enumerate(READS.items()):
                loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
                optimizer.step()
                waited_for: list[str] = []
                hooks = sync._hooks
                wait_for = hooks.wait_for
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(hooks, "wait_for", waited_for.append)
                    optimizer.zero_grad()
                    assert [parameter.shape.numel() for parameter in model.parameters()][-1] == 16
                    assert model.head.weight.size() == (4, 4)
                assert hooks.wait_for == wait_for
                early = read(model.head, kept_view)
                sync._engine.finish()
                results.append((name, early, read(model.head, kept_view), waited_for))
        assert sync.iteration == len(READS)
        return results


def test_b2_reads_that_no_hook_sees_wait_where_they_are_told_to(tmp_path: Path) -> None:
    first, second = run_ranks(read_by_itself, 2, str(tmp_path), init=False)
    assert [name for name, *_ in first] == list(READS)
    for (name, early, late, waited_for), (_, other, _, _) in zip(first, second, strict=True):
        assert torch.equal(early, late), name
        assert torch.equal(early, other), name
        assert waited_for == []


class Failing(nn.Module):
    """A tied embedding whose forward raises when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = MODELS["tied-embedding"]()
        self.fails = False

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(tokens)
        if self.fails:
            raise KeyError("a bad batch")
        return logits


def fail_in_forward(rank: int, failures: int) -> tuple[State, int]:
    """Some forwards raise, in the first iteration and later; the batch is then tried again."""
    torch.manual_seed(0)
    model = Failing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, period=1, planner="equal-count", profile_iterations=5, timeout=20.0)
    for iteration in range(10):
        batch = batch_for("tied-embedding", rank, iteration)
        model.fails = True
        for _ in range(failures):
            with pytest.raises(KeyError, match="a bad batch"):
                loss_of("tied-embedding", model, batch)
            assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()
        model.fails = False
        early: list[str] = []
        if iteration == 8:
            # The tied layer's own signal comes in the backward, before its gradient is complete.
            engine = sync._engine
            assert sync._hooks._read_hooks is not None
            (tied_reader,) = sync._hooks._read_hooks._tied_readers
            tied_reader._engine = Counting(engine, early)  # type: ignore[assignment]
        loss_of("tied-embedding", model, batch).backward()
        if iteration == 8:
            assert early == ["reader"]
            tied_reader._engine = engine
        optimizer.step()
        optimizer.zero_grad()
    assert sync.iteration == 10
    hooks = [len(p._backward_hooks or ()) for p in model.parameters()]
    assert sum(hooks) == 0
    sync._engine.finish()
    return {key: value.clone() for key, value in model.state_dict().items()}, sync.iteration


class Counting:
    """Notes the calls of the engine that a reader of a tied layer makes."""

    def __init__(self, engine: Engine, calls: list[str]) -> None:
        self.engine = engine
        self.calls = calls

    def reader_backward_ends(self, layer: int) -> None:
        self.calls.append("reader")
        self.engine.reader_backward_ends(layer)


def test_forwards_that_raise_leave_nothing_behind() -> None:
    for (state, _), (wanted, _) in zip(
        run_ranks(fail_in_forward, 2, 2), run_ranks(fail_in_forward, 2, 0), strict=True
    ):
        for key, value in state.items():
            assert torch.equal(value, wanted[key]), key
