"""Parameters of all kinds come out as the exact mean, once, where they were."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dreamddp import DreamDDP, Layer, Link, Plan, Profile, simulate
from dreamddp.layers import find_layers
from tests.distributed.models import MODELS, Odd, TiedEmbedding, batch_for, loss_of
from tests.distributed.plans import both_windows_plan, early_window_plan, whole_backward_plan
from tests.distributed.ranks import run_ranks


def fill(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


@dataclass
class TiedRun:
    values: list[float]
    ops_per_iteration: float
    planned_ops: int
    bytes_per_iteration: float
    carried: list[str]


def average_tied(rank: int) -> TiedRun:
    model = TiedEmbedding()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sync = DreamDDP(model, optimizer, period=1, planner="equal-count")
    # One iteration more than is measured: the planner's plan is the one that counts below.
    for iteration in range(16):
        if iteration == 14:
            sync.stats(reset=True)
        fill(model, 1.0 + 2.0 * rank)
        loss_of("tied-embedding", model, batch_for("tied-embedding", rank, iteration)).backward()
        optimizer.step()
    sync._engine.finish()
    stats = sync.stats()
    assert sync.plan is not None
    carried = [sync.plan.layers[segment.layer] for op in sync.plan.ops for segment in op.segments]
    weight = model.embedding.weight
    assert model.head.weight is weight
    return TiedRun(
        weight.flatten().tolist(),
        stats.ops_per_iteration,
        len(sync.plan.ops),
        stats.bytes_per_iteration,
        carried,
    )


def test_b1_a_tied_embedding_is_one_tensor() -> None:
    for run in run_ranks(average_tied, 2):
        assert run.values == [2.0] * (50 * 16)
        assert sorted(run.carried) == ["embedding", "hidden"]
        assert run.ops_per_iteration == run.planned_ops
        assert run.bytes_per_iteration == 4 * (50 * 16 + 16 * 16 + 16)


class Layouts(nn.Module):
    """Channels-last, transposed, strided with gaps, expanded from a larger storage."""

    def __init__(self) -> None:
        super().__init__()
        self.channels_last = nn.Parameter(torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last))
        self.transposed = nn.Parameter(torch.empty(6, 7).t())
        self.gaps = nn.Parameter(torch.empty(5, 9)[:, ::2])
        self.rows = nn.Parameter(torch.empty(4, 8, 3)[:, 1:6, :])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((x.sum() * p.pow(2).sum() for p in self.parameters()), x.sum() * 0)


@dataclass
class LayoutRun:
    values: list[torch.Tensor]
    kept: bool


def average_layouts(rank: int, plan_text: str) -> LayoutRun:
    model = Layouts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sync = DreamDDP(model, optimizer, plan=Plan.from_json(plan_text), staging_bytes=1024)
    before = [(p.stride(), p.data_ptr(), p.storage_offset()) for p in model.parameters()]
    for _ in range(2):
        with torch.no_grad():
            for parameter in model.parameters():
                count = torch.arange(parameter.numel(), dtype=torch.float32).view(parameter.shape)
                parameter.copy_(count + 2.0 * rank)
        model(torch.ones(2)).backward()
        optimizer.step()
        sync._engine.finish()
    after = [(p.stride(), p.data_ptr(), p.storage_offset()) for p in model.parameters()]
    return LayoutRun([p.detach().clone() for p in model.parameters()], before == after)


@pytest.mark.parametrize("make_plan", [whole_backward_plan, both_windows_plan])
def test_b4_layouts_stay_and_elements_meet_their_like(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(["(root)"], period=1)
    for run in run_ranks(average_layouts, 2, plan.to_json()):
        assert run.kept
        for value in run.values:
            assert torch.equal(
                value, torch.arange(value.numel(), dtype=torch.float32).view(value.shape) + 1.0
            )


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def average_dtypes(rank: int) -> list[torch.Tensor]:
    model = nn.ParameterList([nn.Parameter(torch.zeros(5, dtype=dtype)) for dtype in DTYPES])
    sync = DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.0))
    with torch.no_grad():
        for parameter in model:
            parameter.fill_(1.0 + 2.0 * rank)
    sync.finish()
    return [parameter.detach().clone() for parameter in model]


def test_b5_every_dtype_has_an_exact_mean() -> None:
    for values in run_ranks(average_dtypes, 2):
        for dtype, value in zip(DTYPES, values, strict=True):
            assert value.dtype == dtype
            assert torch.equal(value, torch.full((5,), 2.0, dtype=dtype))


def train_odd(rank: int) -> tuple[list[str], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(["(root)", "head"], period=1))
    for iteration in range(5):
        loss_of("odd", model, batch_for("odd", rank, iteration)).backward()
        optimizer.step()
    sync.finish()
    return [layer.name for layer in find_layers(model)], model.state_dict()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_b6_empty_tensors_are_not_planned() -> None:
    (names, first), (_, second) = run_ranks(train_odd, 2)
    assert names == ["(root)", "head"]
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def layers_and_order(rank: int, name: str) -> dict[str, object]:
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, period=2)
    loss_of(name, model, batch_for(name, rank, 0)).backward()
    optimizer.step()
    assert sync._hooks is not None and sync._hooks.order is not None
    return {layer: (reads.last_read, reads.readers) for layer, reads in sync._hooks.order.layers.items()}


def test_b13_reads_hidden_by_module_structure_are_found() -> None:
    reads = run_ranks(layers_and_order, 1, "attention")[0]
    assert reads == {
        "embed": ("forward", ("embed",)),
        "attention": ("backward", ("attention",)),
        "attention.out_proj": ("backward", ("attention",)),
        "gate": ("backward", ("(root)",)),
        "head": ("backward", ("head",)),
    }
    assert run_ranks(layers_and_order, 1, "untied-embedding")[0]["embedding"] == ("forward", ("embedding",))
    assert run_ranks(layers_and_order, 1, "tied-embedding")[0]["embedding"] == (
        ("backward", "head"),
        ("embedding", "head"),
    )


def train_early(rank: int) -> dict[str, torch.Tensor]:
    """The early window of an untied embedding, launched at the end of its forward."""
    torch.manual_seed(0)
    model = MODELS["untied-embedding"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(
        model, optimizer, plan=early_window_plan(["embedding", "hidden", "head"], early="embedding")
    )
    sync.record(6)

    def wait_for_early_op(iteration: int) -> None:
        deadline = time.monotonic() + 30
        while not any(
            span.name == "op 0: 'embedding'" and span.iteration == iteration for span in sync.timeline()
        ):
            assert time.monotonic() < deadline, "the op was not launched before the backward"
            time.sleep(0.001)

    for iteration in range(6):
        loss = loss_of("untied-embedding", model, batch_for("untied-embedding", rank, iteration))
        if iteration == 4:
            # The backward begins only when the average has arrived.
            loss.register_hook(lambda _: wait_for_early_op(4))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sync.finish()
    return model.state_dict()


def test_early_window_of_an_untied_embedding() -> None:
    first, second = run_ranks(train_early, 2)
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def mix_with_own_collectives(rank: int) -> bool:
    torch.manual_seed(0)
    model = MODELS["mlp"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    DreamDDP(model, optimizer, plan=both_windows_plan(["0", "2", "4"], period=2))
    right = True
    for iteration in range(200):
        values = []
        loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))
        values.append(torch.tensor([float(rank + iteration)]))
        dist.all_reduce(values[-1])
        loss.backward()
        values.append(torch.tensor([float(rank + iteration)]))
        dist.all_reduce(values[-1])
        optimizer.step()
        values.append(torch.tensor([float(rank + iteration)]))
        dist.all_reduce(values[-1])
        right = right and all(float(value) == 2 * iteration + 1 for value in values)
    return right


def test_b14_own_collectives_on_the_default_group() -> None:
    assert run_ranks(mix_with_own_collectives, 2) == [True, True]


def plan_with_a_large_ring(rank: int) -> bool:
    """Whether a plan for a model whose first layer has no cover averages in place, as the engine must."""
    model = MODELS["mlp"]()
    sync = DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1), period=2, staging_bytes=64 << 20)
    profile = Profile(
        [
            Layer("0", forward_seconds=1, backward_seconds=2, num_bytes=1000, transfer_seconds=12),
            Layer("2", forward_seconds=1, backward_seconds=2, num_bytes=1000, transfer_seconds=1),
        ]
    )
    plan = sync._planning._plan_for(profile, Link())
    return simulate(plan, profile, Link(), staging_bytes=0).staging_bytes == 0


def test_a_large_ring_is_not_memory_for_held_averages() -> None:
    assert run_ranks(plan_with_a_large_ring, 1) == [True]


def test_parameters_on_several_devices_are_refused() -> None:
    """`meta` stands for a GPU."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(ValueError, match=r"cpu \(first '0.weight'\), meta \(first '1.weight'\)") as raised:
        find_layers(model)
    assert "Move the model to one device" in str(raised.value)
    model[1].requires_grad_(False)
    assert [layer.name for layer in find_layers(model)] == ["0"]
