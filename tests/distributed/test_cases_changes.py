"""Models that change while DreamDDP is attached, are attached to twice, or are copied."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP
from tests.distributed.emulated_ranks import emulated_ranks
from tests.distributed.models import MODELS, batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan
from tests.distributed.ranks import RanksFailed, run_ranks

State = dict[str, torch.Tensor]
LAYERS = ["0", "2", "4"]


def state_of(model: nn.Module) -> State:
    return {key: value.clone() for key, value in model.state_dict().items()}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, iteration: int) -> None:
    inputs, targets = batch_for("mlp", rank, iteration)
    inputs = inputs.to(next(model.parameters()).dtype)
    loss_of("mlp", model, (inputs, targets)).backward()
    optimizer.step()
    optimizer.zero_grad()


def unfreeze(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.get_submodule("0").requires_grad_(True)


def freeze(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.get_submodule("2").requires_grad_(False)


def convert(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.double()


def convert_and_back(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.double().float()


def replace(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    layer = model.get_submodule("4")
    assert isinstance(layer, nn.Linear)
    layer.weight = nn.Parameter(torch.randn(4, 16))
    optimizer.add_param_group({"params": [layer.weight]})


def replace_module(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    layer = nn.Linear(16, 4)
    model.register_module("4", layer)
    optimizer.add_param_group({"params": list(layer.parameters())})


def new_storage(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.detach().clone()


CHANGES = [unfreeze, freeze, convert, convert_and_back, replace, replace_module, new_storage]


def train(rank: int, change: Callable[[nn.Module, torch.optim.Optimizer], None]) -> tuple[State, set[str]]:
    """After the change every rank gives trained parameters values of its own, and some iterations follow that
    do not change them. The state then, and the names of what is trained."""
    torch.manual_seed(rank)
    model = mlp()
    if change is unfreeze:
        model.get_submodule("0").requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sync = DreamDDP(model, optimizer, period=2, planner="equal-count", profile_iterations=5)
    for iteration in range(5):
        step(model, optimizer, rank, iteration)
    change(model, optimizer)
    step(model, optimizer, rank, 5)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    sync._engine.finish()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.fill_(1.0 + 2.0 * rank)
    for iteration in range(6, 16):
        step(model, optimizer, rank, iteration)
    sync._engine.finish()
    assert sync.iteration == 16
    assert sync.plan is not None and sync.plan.planner == "equal-count"
    return state_of(model), trained


@pytest.mark.parametrize("change", CHANGES)
def test_b7_changes_on_all_ranks_are_followed(change: Callable[..., None]) -> None:
    (first, trained), (second, _) = run_ranks(train, 2, change)
    assert trained
    for key, value in first.items():
        assert torch.equal(value, second[key]), key
        if key in trained:
            assert torch.equal(value, torch.full_like(value, 2.0)), key


def freeze_all(rank: int) -> tuple[State, list[str], float]:
    """All parameters are frozen from the start, then after some training."""
    torch.manual_seed(rank)
    model = mlp().requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with pytest.warns(UserWarning, match="no trainable parameters; nothing will be sent"):
        sync = DreamDDP(model, optimizer, plan=None, period=3)
    for _ in range(3):
        model(torch.ones(1, 8))
        optimizer.step()
    sync.finish()
    assert sync.stats().ops_per_iteration == 0
    model.requires_grad_(True)
    for iteration in range(4):
        step(model, optimizer, rank, iteration)
    layers = [layer.name for layer in sync._layers]
    model.requires_grad_(False)
    with pytest.warns(UserWarning, match="no trainable parameters; nothing will be sent"):
        model(torch.ones(1, 8))
    return state_of(model), layers, float(sync.iteration)


def test_b7_all_frozen_is_a_warning() -> None:
    (first, layers, iteration), (second, _, _) = run_ranks(freeze_all, 2)
    assert layers == LAYERS
    assert iteration == 4
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def change_on_one_rank(rank: int, at_finish: bool) -> None:
    torch.manual_seed(0)
    model = mlp()
    model.get_submodule("0").requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sync = DreamDDP(model, optimizer, period=1, profile_iterations=5, timeout=3.0)
    for iteration in range(10):
        if rank == 1 and iteration == 5:
            unfreeze(model, optimizer)
            if at_finish:
                sync.finish()
        step(model, optimizer, rank, iteration)


@pytest.mark.parametrize("at_finish", [False, True])
def test_b7_a_change_on_one_rank_raises_on_both(at_finish: bool) -> None:
    with pytest.raises(RanksFailed) as failure:
        run_ranks(change_on_one_rank, 2, at_finish)
    texts = failure.value.failures
    assert sorted(texts) == [0, 1]
    assert all("SyncError" in text for text in texts.values())
    assert "parameter '0.weight' was frozen" in texts[1]
    assert "change it on all ranks in the same iteration" in texts[1]


def change_differently(rank: int) -> str:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    DreamDDP(model, optimizer, period=1, timeout=10.0)
    step(model, optimizer, rank, 0)
    model.get_submodule("0" if rank == 0 else "2").requires_grad_(False)
    with pytest.raises(ValueError, match="ranks disagree on the changed model") as error:
        step(model, optimizer, rank, 1)
    return str(error.value)


def test_b7_other_changes_on_other_ranks_raise_on_both() -> None:
    for text in run_ranks(change_differently, 2):
        assert "parameter '0.weight' of layer '0' is number 0, frozen" in text
        assert "on rank 0 and number 0, trained" in text


def change_under_a_plan(rank: int) -> bool:
    """A given plan no longer fits."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2))
    step(model, optimizer, rank, 0)
    freeze(model, optimizer)
    with pytest.raises(ValueError, match=r"plan: it lists layers that the model lacks \(2\)"):
        step(model, optimizer, rank, 1)
    sync.detach()
    DreamDDP(model, optimizer, plan=both_windows_plan(["0", "4"], period=2))
    step(model, optimizer, rank, 1)
    return True


def test_b7_a_given_plan_that_no_longer_fits_raises() -> None:
    assert run_ranks(change_under_a_plan, 2) == [True, True]


def replace_statistics(rank: int) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4, momentum=0.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(["0", "1"], period=1), timeout=20.0)
    step(model, optimizer, rank, 0)
    sync._engine.finish()
    model.get_submodule("1").running_mean = torch.full((4,), 1.0 + 2.0 * rank)
    for iteration in range(1, 3):
        step(model, optimizer, rank, iteration)
    sync._engine.finish()
    mean = model.get_submodule("1").running_mean
    assert isinstance(mean, torch.Tensor)
    return mean.clone()


def test_running_statistics_that_are_replaced_are_followed() -> None:
    for mean in run_ranks(replace_statistics, 2):
        assert torch.equal(mean, torch.full((4,), 2.0))


def attach_twice(rank: int) -> bool:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plan = both_windows_plan(LAYERS, period=2)
    sync = DreamDDP(model, optimizer, plan=plan)
    other = nn.Sequential(nn.Linear(8, 8), model)
    for again in (model, other):
        with pytest.raises(ValueError, match="got one to which DreamDDP is attached already"):
            DreamDDP(again, torch.optim.SGD(again.parameters(), lr=0.05), period=2)
    step(model, optimizer, rank, 0)
    sync.detach()
    sync = DreamDDP(model, optimizer, plan=plan)
    step(model, optimizer, rank, 1)
    return sync.iteration == 1


def test_attaching_twice_is_refused_until_detached() -> None:
    assert run_ranks(attach_twice, 2) == [True, True]


def keep_nothing(rank: int) -> State:
    """Nobody keeps the object that DreamDDP() returns."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1))
    gc.collect()
    for iteration in range(3):
        step(model, optimizer, rank, iteration)
    with torch.no_grad():
        model(torch.ones(1, 8))  # waits for averages in flight
        for parameter in model.parameters():
            parameter.fill_(1.0 + 2.0 * rank)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for iteration in range(2):
        step(model, optimizer, rank, iteration)
    return state_of(model)


def test_the_model_keeps_what_is_attached_to_it() -> None:
    for state in run_ranks(keep_nothing, 2):
        for key, value in state.items():
            assert torch.equal(value, torch.full_like(value, 2.0)), key


def copy_attached(rank: int, name: str, folder: str) -> bool:
    with emulated_ranks(rank, 2, Path(folder), latency=0.1):
        torch.manual_seed(0)
        model = MODELS[name]()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = DreamDDP(model, optimizer, period=1, planner="local-sgd", profile_iterations=5)
        for iteration in range(7):
            loss_of(name, model, batch_for(name, rank, iteration)).backward()
            if iteration == 0:
                copies = [copy.deepcopy(model)]  # while the first iteration is watched
            optimizer.step()
            optimizer.zero_grad()
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        copies += [copy.deepcopy(model), torch.load(file, weights_only=False)]
        places = sync.iteration
        for duplicate in copies[1:]:
            # Local SGD in the forward window: the average was in flight.
            for key, value in duplicate.state_dict().items():
                assert torch.equal(value, model.state_dict()[key]), key
        for duplicate in copies:
            for iteration in range(2):
                loss_of(name, duplicate, batch_for(name, rank, iteration)).backward()
            again = torch.optim.SGD(duplicate.parameters(), lr=0.1)
            again.step()
        assert sync.iteration == places
        DreamDDP(copies[1], torch.optim.SGD(copies[1].parameters(), lr=0.1), period=1).finish()
        sync.finish()
        return True


@pytest.mark.parametrize("name", ["mlp", "tied-embedding"])
def test_copies_of_an_attached_model_are_unattached(name: str, tmp_path: Path) -> None:
    assert run_ranks(copy_attached, 2, name, str(tmp_path), init=False) == [True, True]
