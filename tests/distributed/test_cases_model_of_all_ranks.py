"""One model out of all ranks, states that do not fit, and saving on one rank alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, SyncError
from tests.distributed.models import batch_for, loss_of
from tests.distributed.plans import both_windows_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.test_cases_checkpoints import LAYERS, Setup, State, attach, build, train


def save_average(rank: int, path: str, plan: str) -> tuple[State, State]:
    model, optimizer = build(Setup(), 0)
    model.append(nn.BatchNorm1d(4))  # type: ignore[operator]
    sync = attach(Setup(plan=plan), model, optimizer)
    for iteration in range(5):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    local = {key: value.clone() for key, value in model.state_dict().items()}
    averaged = sync.averaged_state_dict()
    assert all(torch.equal(value, local[key]) for key, value in model.state_dict().items())
    if rank == 0:
        torch.save(averaged, path)
    sync._engine.finish()
    return local, dict(averaged)


def go_on_from_average(rank: int, path: str) -> State:
    model, optimizer = build(Setup(), 1)
    model.append(nn.BatchNorm1d(4))  # type: ignore[operator]
    model.load_state_dict(torch.load(path, weights_only=True))
    sync = DreamDDP(model, optimizer, plan=both_windows_plan([*LAYERS, "5"], period=4), first_iteration=5)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    for iteration in range(5, 9):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync.finish()
    return state


@pytest.mark.parametrize("ranks", [1, 2])
def test_d5_the_average_of_four_ranks_goes_on_with_fewer(ranks: int, tmp_path: Path) -> None:
    path = str(tmp_path / "averaged.pt")
    results = run_ranks(save_average, 4, path, "held-with-norm")
    averaged = torch.load(path, weights_only=True)
    assert averaged.keys() == results[0][0].keys()
    for key, value in averaged.items():
        values = [local[key] for local, _ in results]
        if value.is_floating_point():
            torch.testing.assert_close(value, torch.stack(values).double().mean(0).float(), rtol=0, atol=1e-6)
        else:
            assert value.dtype == torch.int64
            assert int(value) == 5
        for _, other in results:
            assert torch.equal(other[key], value)
    weight = "0.weight"
    assert not torch.equal(results[0][0][weight], averaged[weight])
    for state in run_ranks(go_on_from_average, ranks, path):
        assert all(torch.equal(state[key], value) for key, value in averaged.items())


def load_wrongly(rank: int, folder: str, case: str) -> str:
    setup = Setup(plan="both-windows")
    model, optimizer = build(setup, 0)
    if case == "model":
        model = nn.Sequential(nn.Linear(8, 4))
        sync = DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1), period=2, planner="local-sgd")
    elif case == "plan":
        sync = attach(Setup(plan="held"), model, optimizer)
    else:
        sync = attach(setup, model, optimizer)
    file = 1 - rank if case == "rank" else min(rank, 1)
    state = torch.load(f"{folder}/{file}.pt", weights_only=True)["sync"]
    if case == "iteration" and rank == 1:
        state["iteration"] = 7
    if case == "nothing":
        state = {}
    if case == "late":
        loss_of("mlp", model, batch_for("mlp", rank, 0)).backward()
        optimizer.step()
    try:
        sync.load_state_dict(state)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return "loaded"


@pytest.mark.parametrize(
    ("case", "ranks", "text"),
    [
        ("model", 2, "layers of the state: got those of another model (layer '0' differs)"),
        ("rank", 2, "let every rank save and load a state of its own"),
        ("ranks", 3, "load averaged_state_dict() into the model and give first_iteration=6"),
        ("ranks", 1, "load averaged_state_dict() into the model and give first_iteration=6"),
        ("plan", 2, "plan: got another one than that of the state"),
        ("iteration", 2, "ranks disagree on the state: iteration is 6 on rank 0 and 7 on rank 1"),
        ("nothing", 2, "version of the state: got none"),
        ("late", 2, "Load before the first iteration"),
    ],
)
def test_d5_states_that_do_not_fit_are_refused(case: str, ranks: int, text: str, tmp_path: Path) -> None:
    run_ranks(train, 2, Setup(plan="both-windows"), 0, 6, None, str(tmp_path))
    for message in run_ranks(load_wrongly, ranks, str(tmp_path), case):
        assert text in message


@pytest.mark.parametrize("ranks", [1, 2])
def test_d5_states_of_four_ranks_are_refused_by_fewer(ranks: int, tmp_path: Path) -> None:
    run_ranks(train, 4, Setup(plan="both-windows"), 0, 6, None, str(tmp_path))
    for message in run_ranks(load_wrongly, ranks, str(tmp_path), "ranks"):
        assert "of 4" in message
        assert "load averaged_state_dict() into the model and give first_iteration=6" in message


def save_on_rank_0_only(rank: int, path: str) -> tuple[State, dict[str, Any] | None]:
    model, optimizer = build(Setup(), 0)
    sync = attach(Setup(plan="held"), model, optimizer)
    state = None
    for iteration in range(8):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if iteration == 1 and rank == 0:
            state = sync.state_dict()
        if iteration == 2 and rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    sync.finish()
    return model.state_dict(), state


def test_a6_state_dict_on_one_rank_issues_no_collective(tmp_path: Path) -> None:
    (first, state), (second, _) = run_ranks(save_on_rank_0_only, 2, str(tmp_path / "saved.pt"))
    assert state is not None and state["iteration"] == 2
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def average_on_rank_0_only(rank: int, other: str) -> str:
    model, optimizer = build(Setup(), 0)
    sync = attach(Setup(plan="both-windows"), model, optimizer, timeout=2.0)

    def train(iterations: range) -> None:
        for iteration in iterations:
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()

    train(range(5))
    on_rank_1 = sync.finish if other == "finish" else lambda: train(range(5, 10))
    call: Callable[[], object] = sync.averaged_state_dict if rank == 0 else on_rank_1
    with pytest.raises((ValueError, SyncError)) as caught:
        call()
    return f"{caught.typename}: {caught.value}"


def test_a6_a_collective_on_one_rank_is_an_error() -> None:
    wanted = (
        "ValueError: ranks disagree: rank 0 calls averaged_state_dict(), rank 1 calls finish(). "
        "Make the same calls, in the same order, on every rank."
    )
    assert run_ranks(average_on_rank_0_only, 2, "finish") == [wanted] * 2
    text, other = run_ranks(average_on_rank_0_only, 2, "training", timeout=30)
    assert text.startswith("SyncError: rank 0: averaged_state_dict() after step 4 failed after")
    assert "rank 1" in text
    assert other.startswith("SyncError: ")
    assert "rank 0 has called averaged_state_dict() at step 4" in other
