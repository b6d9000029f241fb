"""Plans of gradients: carried out by the same executor, with the numbers of DistributedDataParallel."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dreamddp import DreamDDP, Event, EventKind, Link, Op, Plan, Quantity, Segment
from tests.distributed.models import MODELS, batch_for, loss_of
from tests.distributed.ranks import run_ranks

State = dict[str, torch.Tensor]
LINK = Link(bandwidth_bytes_per_second=1e6, workers=2)


def train_loop(
    rank: int, name: str, model: nn.Module, inner: nn.Module, optimizer: torch.optim.Optimizer
) -> State:
    """Fifteen iterations with clipped gradients."""
    for iteration in range(15):
        loss_of(name, model, batch_for(name, rank, iteration)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return {key: value.clone() for key, value in inner.state_dict().items()}


def train_both(rank: int, name: str, planner: str) -> tuple[State, State, str]:
    """What DreamDDP and DistributedDataParallel make of the same start, and the plan at the end."""
    states = []
    for use_dreamddp in (True, False):
        torch.manual_seed(0)
        inner = MODELS[name]()
        optimizer = torch.optim.AdamW(inner.parameters(), lr=0.01)
        if use_dreamddp:
            sync = DreamDDP(inner, optimizer, planner=planner, link=LINK, profile_iterations=5)
            states.append(train_loop(rank, name, inner, inner, optimizer))
            sync.finish()
            plan = sync.plan
            sync.detach()
        else:
            states.append(train_loop(rank, name, DistributedDataParallel(inner), inner, optimizer))
    assert plan is not None
    return states[0], states[1], plan.planner


@pytest.mark.parametrize("name", ["mlp", "attention", "tied-embedding"])
@pytest.mark.parametrize("planner", ["ssgd", "wfbp", "asc-wfbp"])
def test_clipped_gradients_train_as_with_ddp(name: str, planner: str) -> None:
    """Also while it measures, and in the very first iteration."""
    for ours, theirs, made_by in run_ranks(train_both, 2, name, planner):
        assert made_by == planner
        for key, value in theirs.items():
            assert torch.equal(ours[key], value), key


class Branches(nn.Module):
    """Rank 0 uses the first branch, rank 1 the second, nobody the third."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor, branch: int) -> torch.Tensor:
        y: torch.Tensor = self.branches[branch](x)
        return y


def gradient_plan(layers: list[str]) -> Plan:
    """The first layer in two parts, so that a part's gradient may be there while the other's is not."""
    parts = [Segment(0, 0.0, 0.5), Segment(0, 0.5, 1.0), Segment(1), Segment(2)]
    return Plan(
        planner="by hand",
        period=1,
        layers=layers,
        ops=[
            Op(
                [part],
                launch=Event(0, EventKind.after_backward, 0),
                deadline=Event(0, EventKind.before_step),
                quantity=Quantity.gradients,
            )
            for part in parts
        ],
    )


def train_branches(rank: int, dtype: torch.dtype) -> list[torch.Tensor | None]:
    torch.manual_seed(0)
    model = Branches().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    DreamDDP(model, optimizer, plan=gradient_plan([f"branches.{i}" for i in range(3)]))
    model(torch.full((1, 4), 1.0 + rank, dtype=dtype), rank).real.sum().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64])
def test_gradients_that_a_rank_lacks_count_as_zero(dtype: torch.dtype) -> None:
    half = torch.full((4, 4), 0.5, dtype=dtype)
    one = torch.full((4, 4), 1.0, dtype=dtype)
    bias = torch.full((4,), 0.5, dtype=dtype)
    for gradients in run_ranks(train_branches, 2, dtype):
        assert gradients[4] is None
        assert gradients[5] is None
        for gradient, expected in zip(gradients[:4], [half, bias, one, bias], strict=True):
            assert gradient is not None
            assert torch.equal(gradient, expected)


def train_sparse(rank: int) -> str:
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    DreamDDP(model, optimizer, planner="wfbp", link=LINK)
    try:
        model(torch.tensor([1, 2])).sum().backward()
    except Exception as error:
        return str(error)
    return "no error"


def test_sparse_gradients_are_refused() -> None:
    for message in run_ranks(train_sparse, 2):
        assert "sparse" in message
        assert "sparse=False" in message


class Normalised(nn.Sequential):
    """Running statistics with momentum 0.5; the inputs of rank r are the numbers r + 1 and -(r + 1)."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 2), nn.BatchNorm1d(2, momentum=0.5), nn.Linear(2, 1))


WINDOWS = {
    "gradients": (EventKind.after_backward, Event(0, EventKind.before_step), Quantity.gradients),
    "backward": (EventKind.after_backward, Event(0, EventKind.before_step), Quantity.parameters),
    "forward": (EventKind.after_step, Event(1, EventKind.before_forward, 1), Quantity.parameters),
    "held": (EventKind.after_step, Event(1, EventKind.before_step), Quantity.parameters),
    "carried": (EventKind.after_step, Event(2, EventKind.before_step), Quantity.parameters),
}


def normalisation_plan(window: str) -> Plan:
    """Both linear layers in the backward window, the normalisation in the window named."""
    kind, deadline, quantity = WINDOWS[window]
    launch = Event(0, kind, 1) if kind is EventKind.after_backward else Event(0, kind)
    others = Op(
        [Segment(0), Segment(2)],
        launch=Event(0, EventKind.after_backward, 0),
        deadline=Event(0, EventKind.before_step),
    )
    normalisation = Op([Segment(1)], launch=launch, deadline=deadline, quantity=quantity)
    ops = [normalisation, others] if launch.kind is EventKind.after_backward else [others, normalisation]
    return Plan(planner="by hand", period=1, layers=["0", "1", "2"], ops=ops)


def train_normalised(rank: int, window: str, forwards: int) -> list[list[float]]:
    """Running means of both ranks after each iteration, once everything has been written."""
    torch.manual_seed(0)
    model = Normalised()
    with torch.no_grad():
        model.get_parameter("0.weight").copy_(torch.tensor([[1.0], [2.0]]))
        model.get_parameter("0.bias").zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sync = DreamDDP(model, optimizer, plan=normalisation_plan(window))
    means = []
    for _ in range(10):
        inputs = torch.tensor([[rank + 1.0], [3 * rank + 1.0]])
        torch.stack([model(inputs).sum() for _ in range(forwards)]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        sync._engine.finish()
        means.append(model.get_buffer("1.running_mean").tolist())
    assert model.get_buffer("1.num_batches_tracked").dtype == torch.int64
    return means


@pytest.mark.parametrize("window", sorted(WINDOWS))
@pytest.mark.parametrize("forwards", [1, 2])
def test_b9_running_statistics_are_averaged_with_their_layer(window: str, forwards: int) -> None:
    """The mean of a batch is 1 on rank 0 and 3 on rank 1; that of both ranks follows 2 (1 - 2^-n) over n
    forwards."""
    results = run_ranks(train_normalised, 2, window, forwards)
    assert results[0] == results[1]
    shares = [1 - 0.5 ** (n * forwards) for n in range(1, 11)]
    assert results[0] == [[2 * share, 4 * share] for share in shares]


def train_without_keeping(rank: int) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    DreamDDP(model, optimizer, planner="ssgd", link=LINK)
    start = model.weight.detach().clone()
    for _ in range(3):
        model(torch.tensor([[float(rank)]])).backward()
        optimizer.step()
        optimizer.zero_grad()
    return start - model.weight.detach()


def test_training_goes_on_where_nobody_keeps_the_object() -> None:
    assert [float(moved) for moved in run_ranks(train_without_keeping, 2)] == [1.5, 1.5]
