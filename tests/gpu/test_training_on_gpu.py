"""Training on a GPU equals the algorithm computed in one process, and its thread never waits for the GPU."""

from __future__ import annotations

import tempfile
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dreamddp import DreamDDP, Event, EventKind, Link, Op, OpMode, Plan, Profile, Segment, make_plan
from dreamddp._core import op_mode
from tests.distributed.models import batch_for, loss_of
from tests.distributed.ranks import run_ranks
from tests.distributed.reference import run_reference
from tests.distributed.test_engine_reference import build, found_profile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

State = dict[str, torch.Tensor]
DEVICE = "cuda"
ITERATIONS = 20
SETTLED = 6  # iterations after which nothing is set up any more


def build_on(device: str, name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, _ = build(name)
    model.to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def batches_on(device: str, name: str, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    batches = [batch_for(name, rank, iteration) for iteration in range(ITERATIONS)]
    return [(inputs.to(device), targets.to(device)) for inputs, targets in batches]


def iterate(
    name: str, model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    loss_of(name, model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()


def state_of(model: nn.Module) -> State:
    return {key: value.cpu() for key, value in model.state_dict().items()}


def train(rank: int, name: str, plan_text: str) -> State:
    """In the settled iterations, an operation that waits for the GPU is an error, on any thread."""
    model, optimizer = build_on(DEVICE, name)
    batches = batches_on(DEVICE, name, rank)
    sync = DreamDDP(model, optimizer, plan=Plan.from_json(plan_text))
    for batch in batches[:SETTLED]:
        iterate(name, model, optimizer, batch)
    torch.cuda.set_sync_debug_mode("error")
    for batch in batches[SETTLED:]:
        iterate(name, model, optimizer, batch)
    torch.cuda.set_sync_debug_mode("default")
    sync._engine.finish()
    return state_of(model)


def reference(device: str, name: str, plan: Plan, profile: Profile, world_size: int) -> list[State]:
    models, optimizers = zip(*(build_on(device, name) for _ in range(world_size)), strict=True)
    batches = [batches_on(device, name, rank) for rank in range(world_size)]

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        loss_of(name, model, batches[rank][iteration]).backward()

    run_reference(models, optimizers, compute_gradients, plan, profile, ITERATIONS)
    return [state_of(model) for model in models]


def check(name: str, plan: Plan, profile: Profile) -> None:
    """The GPU's own arithmetic bit for bit, the CPU's closely."""
    states = run_ranks(train, 2, name, plan.to_json())
    on_gpu = reference(DEVICE, name, plan, profile, 2)
    on_cpu = reference("cpu", name, plan, profile, 2)
    for state, same, close in zip(states, on_gpu, on_cpu, strict=True):
        for key, value in state.items():
            assert torch.equal(value, same[key]), key
            torch.testing.assert_close(value, close[key], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "untied-embedding"])
@pytest.mark.parametrize("planner", ["balanced", "local-sgd", "ssgd", "wfbp"])
def test_two_ranks_on_one_gpu_equal_the_reference(name: str, planner: str) -> None:
    profile = Profile.from_json(run_ranks(found_profile, 2, name)[0])
    link = Link(bandwidth_bytes_per_second=1e6, workers=2)
    check(name, make_plan(planner, profile, link, period=3), profile)


@pytest.mark.parametrize(
    ("mode", "max_delay", "latency_seconds"), [(OpMode.held, 0, 0.008), (OpMode.carried, 2, 0.03)]
)
def test_averages_that_are_kept_back_equal_the_reference(
    mode: OpMode, max_delay: int, latency_seconds: float
) -> None:
    profile = Profile.from_json(run_ranks(found_profile, 2, "mlp")[0])
    link = Link(bandwidth_bytes_per_second=1e6, latency_seconds=latency_seconds, workers=2, in_flight=4)
    plan = make_plan("balanced", profile, link, period=3, staging_bytes=1 << 30, max_delay=max_delay)
    assert mode in {op_mode(op, profile) for op in plan.ops}
    check("mlp", plan, profile)


def test_carried_averages_that_overlap_equal_the_reference() -> None:
    profile = Profile.from_json(run_ranks(found_profile, 2, "mlp")[0])
    names = [layer.name for layer in profile.layers]
    segments = [Segment(i) for i, layer in enumerate(profile.layers) if layer.num_bytes]
    op = Op(segments, launch=Event(0, EventKind.after_step), deadline=Event(2, EventKind.before_step))
    check("mlp", Plan(planner="by hand", period=1, layers=names, ops=[op]), profile)


def train_alone(rank: int, plan_text: str | None, backend: str) -> State:
    """With a plan where there is one, else without DreamDDP."""
    if plan_text is not None:
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group(
                backend,
                init_method=f"file://{folder}/store",
                rank=0,
                world_size=1,
                timeout=timedelta(seconds=60),
            )
            state = train(rank, "mlp", plan_text)
            dist.destroy_process_group()
            return state
    model, optimizer = build_on(DEVICE, "mlp")
    for batch in batches_on(DEVICE, "mlp", rank):
        iterate("mlp", model, optimizer, batch)
    return state_of(model)


# NCCL takes one rank for each GPU, so its own path is seen with one rank only.
@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo,cuda:nccl"])
def test_one_rank_trains_as_without(backend: str) -> None:
    profile = Profile.from_json(run_ranks(found_profile, 1, "mlp")[0])
    link = Link(bandwidth_bytes_per_second=1e6, workers=2)
    plan = make_plan("balanced", profile, link, period=3)
    with_plan = run_ranks(train_alone, 1, plan.to_json(), backend, init=False)[0]
    without = run_ranks(train_alone, 1, None, backend, init=False)[0]
    for key, value in without.items():
        assert torch.equal(with_plan[key], value), key


class Slow(nn.Linear):
    """Keeps the GPU busy for long, and its thread for no time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(50_000_000)
        return super().forward(x)


def measure(rank: int) -> tuple[dict[str, float], float]:
    model = nn.Sequential(nn.Linear(8, 8), Slow(8, 8), nn.Linear(8, 8)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, planner="local-sgd", period=8, link=Link())
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(50_000_000)
    end.record()
    for _ in range(8):
        model(torch.randn(4, 8, device=DEVICE)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    seconds = {layer.name: layer.forward_seconds for layer in sync.measured_profile().layers}
    sync.detach()
    return seconds, begin.elapsed_time(end) / 1000


def test_measured_times_are_those_of_the_gpu() -> None:
    seconds, slow_seconds = run_ranks(measure, 1)[0]
    assert seconds["1"] > 0.5 * slow_seconds
    assert seconds["2"] < 0.5 * slow_seconds
