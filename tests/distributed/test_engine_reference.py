"""Training with DreamDDP equals the algorithm computed in one process, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, Link, Plan, Profile, make_plan
from dreamddp.profiling import untimed_profile
from tests.distributed.models import MODELS, batch_for, loss_of
from tests.distributed.ranks import run_ranks
from tests.distributed.reference import run_reference

State = dict[str, torch.Tensor]


def build(name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = MODELS[name]()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(rank: int, name: str, plan_text: str, iterations: int) -> tuple[State, str]:
    model, optimizer = build(name)
    sync = DreamDDP(model, optimizer, plan=Plan.from_json(plan_text))
    for iteration in range(iterations):
        loss_of(name, model, batch_for(name, rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    assert sync.plan is not None
    return {key: value.clone() for key, value in model.state_dict().items()}, sync.plan.to_json()


def reference(name: str, plan: Plan, world_size: int, iterations: int) -> list[State]:
    models, optimizers = zip(*(build(name) for _ in range(world_size)), strict=True)

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        loss_of(name, model, batch_for(name, rank, iteration)).backward()

    run_reference(models, optimizers, compute_gradients, plan, iterations)
    return [model.state_dict() for model in models]


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("planner", ["local-sgd", "equal-count", "balanced"])
def test_two_ranks_equal_the_reference(name: str, planner: str) -> None:
    profile = Profile.from_json(run_ranks(found_profile, 2, name)[0])
    link = Link(bandwidth_bytes_per_second=1e6, workers=2)
    plan = make_plan(planner, profile, link, period=3)
    results = run_ranks(train, 2, name, plan.to_json(), 20)
    expected = reference(name, plan, 2, 20)
    for (state, _), wanted in zip(results, expected, strict=True):
        assert state.keys() == wanted.keys()
        for key, value in state.items():
            assert torch.equal(value, wanted[key]), key


def found_profile(rank: int, name: str) -> str:
    """The profile of a model with made-up times: reads as found in one iteration."""
    model, optimizer = build(name)
    sync = DreamDDP(model, optimizer, planner="local-sgd", period=2)
    loss_of(name, model, batch_for(name, rank, 0)).backward()
    optimizer.step()
    assert sync._order is not None
    untimed = untimed_profile(sync._order, sync._layers)
    sync.detach()
    timed = [
        type(layer)(
            layer.name,
            forward_seconds=0.001 * (1 + index % 3),
            backward_seconds=0.002,
            num_bytes=layer.num_bytes,
            last_read=layer.last_read,
        )
        for index, layer in enumerate(untimed.layers)
    ]
    return Profile(timed, step_seconds=0.001, backward_order=untimed.backward_order).to_json()
