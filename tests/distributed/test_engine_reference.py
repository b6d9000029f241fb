"""Training with DreamDDP equals the algorithm computed in one process, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, Event, EventKind, Link, Op, OpMode, Plan, Profile, Segment, make_plan
from dreamddp._core import op_mode
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


def reference(name: str, plan: Plan, profile: Profile, world_size: int, iterations: int) -> list[State]:
    models, optimizers = zip(*(build(name) for _ in range(world_size)), strict=True)

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        loss_of(name, model, batch_for(name, rank, iteration)).backward()

    run_reference(models, optimizers, compute_gradients, plan, profile, iterations)
    return [model.state_dict() for model in models]


def check_against_reference(name: str, plan: Plan, profile: Profile) -> None:
    results = run_ranks(train, 2, name, plan.to_json(), 20)
    expected = reference(name, plan, profile, 2, 20)
    for (state, _), wanted in zip(results, expected, strict=True):
        assert state.keys() == wanted.keys()
        for key, value in state.items():
            assert torch.equal(value, wanted[key]), key


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize(
    "planner", ["ssgd", "wfbp", "asc-wfbp", "ddp", "local-sgd", "equal-count", "dreamddp", "balanced"]
)
def test_two_ranks_equal_the_reference(name: str, planner: str) -> None:
    profile = Profile.from_json(run_ranks(found_profile, 2, name)[0])
    link = Link(bandwidth_bytes_per_second=1e6, workers=2)
    check_against_reference(name, make_plan(planner, profile, link, period=3), profile)


# Latencies that averages in place, and then held ones, cannot hide.
@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize(
    ("mode", "max_delay", "latency_seconds"), [(OpMode.held, 0, 0.008), (OpMode.carried, 2, 0.03)]
)
def test_averages_that_are_kept_back_equal_the_reference(
    name: str, mode: OpMode, max_delay: int, latency_seconds: float
) -> None:
    profile = Profile.from_json(run_ranks(found_profile, 2, name)[0])
    link = Link(bandwidth_bytes_per_second=1e6, latency_seconds=latency_seconds, workers=2, in_flight=4)
    plan = make_plan("balanced", profile, link, period=3, staging_bytes=1 << 30, max_delay=max_delay)
    assert mode in {op_mode(op, profile) for op in plan.ops}
    check_against_reference(name, plan, profile)


@pytest.mark.parametrize("deadline", [Event(2, EventKind.before_step), Event(2, EventKind.before_forward, 0)])
def test_carried_averages_that_overlap_equal_the_reference(deadline: Event) -> None:
    """Every iteration launches an average before that of the iteration before is written."""
    profile = Profile.from_json(run_ranks(found_profile, 2, "mlp")[0])
    names = [layer.name for layer in profile.layers]
    segments = [Segment(i) for i, layer in enumerate(profile.layers) if layer.num_bytes]
    op = Op(segments, launch=Event(0, EventKind.after_step), deadline=deadline)
    plan = Plan(planner="by hand", period=1, layers=names, ops=[op])
    assert op_mode(op, profile) is OpMode.carried
    check_against_reference("mlp", plan, profile)


def found_profile(rank: int, name: str) -> str:
    """The profile of a model with made-up times: reads as found in one iteration."""
    model, optimizer = build(name)
    sync = DreamDDP(model, optimizer, planner="local-sgd", period=2)
    loss_of(name, model, batch_for(name, rank, 0)).backward()
    optimizer.step()
    assert sync._hooks is not None and sync._hooks.order is not None
    untimed = untimed_profile(sync._hooks.order, sync._layers)
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
