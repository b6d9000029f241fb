"""Learning rates that fall with the local steps since a layer's last average."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, EventKind, Layer, Link, Profile
from dreamddp._core import plan_due_layers, training_slack
from dreamddp.policies import BoundedStaleness, FixedPeriod
from tests.distributed.models import mlp
from tests.distributed.ranks import run_ranks

LINK = Link(bandwidth_bytes_per_second=1e8, latency_seconds=1e-3)
# '0' is averaged in iterations 2, 5, ..; '2' in 3, 5, ..; '4' in every one from the second on.
POLICIES = {"0": FixedPeriod(3), "2": BoundedStaleness(2), "*": FixedPeriod(1)}
DECAY = 0.5


def profile() -> Profile:
    return Profile(
        [
            Layer(name, forward_seconds=1e-3, backward_seconds=2e-3, num_bytes=4 * num_elements)
            for name, num_elements in (("0", 144), ("2", 272), ("4", 68))
        ]
    )


def staleness(iteration: int) -> dict[str, int]:
    """Local steps of each layer since its last average, by hand; counted from iteration 1 on, the first that
    policies decide about."""
    return {"0": [0, 0, 0, 1, 2, 0, 1, 2][iteration], "2": [0, 0, 1, 0, 1, 0, 1, 0][iteration], "4": 0}


def make(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp()
    parameters = list(model.parameters())
    groups = [{"params": parameters[:3], "lr": 0.08}, {"params": parameters[3:], "lr": 0.04}]
    if kind == "adamw":
        return model, torch.optim.AdamW(groups, weight_decay=0.1)
    if kind == "tensor":
        for group in groups:
            group["lr"] = torch.tensor(group["lr"])
        return model, torch.optim.AdamW(groups, capturable=False, foreach=False)
    return model, torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def compute(model: nn.Module, rank: int, iteration: int) -> None:
    generator = torch.Generator().manual_seed(100 * iteration + rank)
    inputs = torch.randn(4, next(model.parameters()).shape[1], generator=generator)
    model(inputs).square().mean().backward()


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def train(rank: int, kind: str) -> tuple[dict[str, torch.Tensor], list[list[float]]]:
    model, optimizer = make(kind)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
    sync = DreamDDP(model, optimizer, policies=POLICIES, staleness_decay=DECAY, profile=profile(), link=LINK)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for iteration in range(8):
            compute(model, rank, iteration)
            optimizer.step()
            optimizer.zero_grad()
            seen.append(rates(optimizer))
            scheduler.step()
    sync.finish()
    return model.state_dict(), seen


def reference(kind: str) -> tuple[dict[str, torch.Tensor], list[list[float]]]:
    """Two models in plain PyTorch with a parameter group for each layer and learning rate."""
    pairs = [make(kind) for _ in range(2)]
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5) for _, optimizer in pairs]
    seen = []
    averaged = {"0": {2, 5}, "2": {3, 5, 7}, "4": set(range(1, 8))}
    for iteration in range(8):
        for rank, (model, _) in enumerate(pairs):
            compute(model, rank, iteration)
        models = [model for model, _ in pairs]
        is_due = [iteration in places for places in averaged.values()]
        plan = plan_due_layers(profile(), LINK, is_due, slack=training_slack)
        before, after = (
            [
                plan.layers[segment.layer]
                for op in plan.ops
                for segment in op.segments
                if (op.launch.kind is EventKind.after_step) == is_after
            ]
            for is_after in (False, True)
        )
        average(models, before)
        for (model, optimizer), scheduler in zip(pairs, schedulers, strict=True):
            step_with_rates(model, optimizer, staleness(iteration))
            optimizer.zero_grad()
            if model is models[0]:
                seen.append(rates(optimizer))
            scheduler.step()
        average(models, after)
    average(models, ["0", "2", "4"])
    return models[0].state_dict(), seen


def average(models: list[nn.Module], layers: list[str]) -> None:
    with torch.no_grad():
        for values in zip(*(model.named_parameters() for model in models), strict=True):
            if values[0][0].split(".")[0] in layers:
                mean = (values[0][1] + values[1][1]) / 2
                for _, parameter in values:
                    parameter.copy_(mean)


def step_with_rates(model: nn.Module, optimizer: torch.optim.Optimizer, steps: dict[str, int]) -> None:
    """Each parameter alone, with its own learning rate."""
    names = {id(parameter): name.split(".")[0] for name, parameter in model.named_parameters()}
    whole = [(group["params"], group["lr"]) for group in optimizer.param_groups]
    for index, (parameters, rate) in enumerate(whole):
        for parameter in parameters:
            for other, group in enumerate(optimizer.param_groups):
                group["params"] = [parameter] if other == index else []
            optimizer.param_groups[index]["lr"] = rate * DECAY ** steps[names[id(parameter)]]
            optimizer.step()
        optimizer.param_groups[index]["lr"] = rate
    for group, (parameters, _) in zip(optimizer.param_groups, whole, strict=True):
        group["params"] = parameters


@pytest.mark.parametrize("kind", ["sgd", "adamw", "tensor"])
def test_steps_are_those_of_a_plain_loop_and_schedulers_see_nothing(kind: str) -> None:
    expected, expected_rates = reference(kind)
    for state, seen in run_ranks(train, 2, kind):
        assert seen == expected_rates
        for key, value in expected.items():
            assert torch.allclose(state[key], value, rtol=0, atol=1e-6), key


def fail_in_a_step(rank: int) -> tuple[bool, bool, int]:
    model, optimizer = make("sgd")
    sync = DreamDDP(model, optimizer, policies=POLICIES, staleness_decay=DECAY, profile=profile(), link=LINK)
    before = copy.deepcopy(optimizer.state_dict()["param_groups"])
    groups = list(optimizer.param_groups)
    for iteration in range(5):
        compute(model, rank, iteration)
        optimizer.step()
        optimizer.zero_grad()
    compute(model, rank, 5)
    count = 0

    def split(_: Any, args: Any, kwargs: Any) -> None:
        nonlocal count
        count = len(optimizer.param_groups)
        raise RuntimeError("no step")

    handle = optimizer.register_step_pre_hook(split)
    with pytest.raises(RuntimeError, match="no step"):
        optimizer.step()
    handle.remove()
    state = optimizer.state_dict()["param_groups"] == before
    identical = all(one is other for one, other in zip(optimizer.param_groups, groups, strict=True))
    sync.detach()
    return state, identical, count


def test_a_step_that_raises_leaves_groups_as_they_were() -> None:
    for state, identical, count in run_ranks(fail_in_a_step, 2):
        assert state
        assert identical
        assert count >= 2


def attach_badly(rank: int, case: str) -> str:
    model, optimizer = make("sgd")
    cases: dict[str, dict[str, Any]] = {
        "range": {"policies": POLICIES, "staleness_decay": 1.5},
        "alone": {"staleness_decay": 0.9},
        "one rank": {"policies": POLICIES, "staleness_decay": 0.9 if rank else None},
    }
    with pytest.raises(ValueError, match=r".") as caught:
        DreamDDP(model, optimizer, **cases[case])
    return str(caught.value)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("range", "staleness_decay: got 1.5; expected a number above 0 and at most 1"),
        ("alone", "staleness_decay: got 0.9; expected nothing without policies"),
        ("one rank", "staleness_decay is None on rank 0 and 0.9 on rank 1"),
    ],
)
def test_what_does_not_fit_is_refused(case: str, text: str) -> None:
    for message in run_ranks(attach_badly, 2, case):
        assert text in message
