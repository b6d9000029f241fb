"""What the timeline of a real run over a slow link shows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dreamddp import DreamDDP, Event, EventKind, Op, Plan, Segment, Span, SpanKind
from tests.distributed.emulated_ranks import emulated_ranks
from tests.distributed.ranks import run_ranks

SECONDS = 0.06


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        time.sleep(SECONDS)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(SECONDS)
        return gradient


class Sleep(nn.Module):
    """Compute that takes its time without needing a core."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = _Sleep.apply(x)  # type: ignore[no-untyped-call]
        return y


def overlap(span: Span, others: list[Span]) -> float:
    """Seconds of the span during which one of the others, which do not overlap, is under way."""
    return sum(
        max(0.0, min(span.end_seconds, o.end_seconds) - max(span.begin_seconds, o.begin_seconds))
        for o in others
    )


def train(rank: int, folder: Path) -> tuple[list[float], float]:
    """The share of each op's time that compute covers, and the seconds of compute that waited."""
    with emulated_ranks(rank, 2, folder, bandwidth=1e6, latency=1e-3):
        model = nn.Sequential(nn.Linear(64, 64), Sleep(), nn.Linear(64, 64), Sleep(), nn.Linear(64, 64))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        layers = ["0", "2", "4"]
        plan = Plan(
            planner="by hand",
            period=1,
            layers=layers,
            ops=[
                Op(
                    [Segment(2)],
                    launch=Event(0, EventKind.after_backward, 2),
                    deadline=Event(0, EventKind.before_step),
                ),
                Op(
                    [Segment(0), Segment(1)],
                    launch=Event(0, EventKind.after_backward, 0),
                    deadline=Event(0, EventKind.before_step),
                ),
            ],
        )
        sync = DreamDDP(model, optimizer, plan=plan)
        for iteration in range(4):
            if iteration == 1:
                sync.record(3)
            model(torch.randn(2, 64)).sum().backward()
            optimizer.step()
        sync._engine.finish()
        spans = sync.timeline()
        compute_kinds = (SpanKind.forward, SpanKind.backward, SpanKind.step)
        compute = [span for span in spans if span.kind in compute_kinds]
        hidden = [span for span in spans if span.kind == SpanKind.link and "op 0" in span.name]
        waits = [span for span in spans if span.kind == SpanKind.wait]
        shares = [overlap(op, compute) / (op.end_seconds - op.begin_seconds) for op in hidden]
        return shares, sum(span.end_seconds - span.begin_seconds for span in waits)


def test_f5_ops_lie_inside_compute(tmp_path: Path) -> None:
    for shares, waited in run_ranks(train, 2, tmp_path, init=False):
        assert len(shares) == 3
        # Op 0 has the backward of two sleeping layers in front of its deadline; op 1 has nothing and is
        # waited for.
        assert min(shares) > 0.5
        assert waited > 0
