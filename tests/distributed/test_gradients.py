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
    model(torch.full((1, 4), 1.0 + rank, dtype=dtype), rank).sum().backward()
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
