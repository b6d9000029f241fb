"""The ways to keep ranks together: PyTorch's DistributedDataParallel, DreamDDP with a plan or policies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from dreamddp import DreamDDP, Link, Plan, Profile
from dreamddp._core import Span, SpanKind, format_num_bytes
from dreamddp.policies import Policy
from dreamddp.policy_training import IterationDecisions


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """When the parts of one step began, in seconds of time.monotonic()."""

    step: int
    forward_begins: float
    backward_begins: float
    backward_ends: float
    step_ends: float


LinkSpans = Callable[[int, int, float, float], list[Span]]
"""What was on the link between two moments, as spans of a rank and an iteration."""


def emulated_link_spans(rank: int, iteration: int, begin_seconds: float, end_seconds: float) -> list[Span]:
    """The collectives that went over this process's emulated link, as it booked them."""
    from dreamddp.emulated_link import recent_bookings

    return [
        Span(
            SpanKind.link,
            f"{booking.collective} of {format_num_bytes(booking.num_bytes)}",
            rank=rank,
            iteration=iteration,
            begin_seconds=1e-9 * booking.start,
            end_seconds=1e-9 * booking.finish,
        )
        for booking in recent_bookings()
        if begin_seconds <= 1e-9 * booking.start < end_seconds
    ]


def no_link_spans(rank: int, iteration: int, begin_seconds: float, end_seconds: float) -> list[Span]:
    """A real link does not say what goes over it."""
    return []


class Method(Protocol):
    """Keeps the model of this rank together with those of the others. Not thread-safe."""

    @property
    def module(self) -> nn.Module:
        """What the training loop calls: the model, or a wrapper around it."""

    def record(self, iterations: int) -> None:
        """Records the timeline of the next iterations."""

    def exposed_seconds(self, times: StepTimes) -> float:
        """How long the step that has just ended waited for the link. To be called after every step."""

    def timeline(self) -> list[Span]:
        """The recorded spans of this rank, on the clock of time.monotonic()."""

    def decisions(self) -> list[IterationDecisions]:
        """What policies have decided; empty where a plan says what is averaged."""

    def finish(self) -> None:
        """Makes all ranks equal and leaves the model as any other."""


class DdpMethod:
    """Unmodified DistributedDataParallel over the default process group.

    Exposed communication is the time from the moment when the last gradient is there until backward()
    returns: all that is left to do then is to wait for the gradients' averages.
    """

    def __init__(self, model: nn.Module, rank: int, link_spans: LinkSpans) -> None:
        self._ddp = DistributedDataParallel(model)
        self._rank = rank
        self._link_spans = link_spans
        self._last_gradient = 0.0
        self._to_record = 0
        self._spans: list[Span] = []
        self._hooks: list[RemovableHandle] = [
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)
            for parameter in model.parameters()
            if parameter.requires_grad
        ]

    @property
    def module(self) -> nn.Module:
        return self._ddp

    def _gradient_is_ready(self, _: Tensor) -> None:
        self._last_gradient = time.monotonic()

    def record(self, iterations: int) -> None:
        self._to_record = iterations

    def exposed_seconds(self, times: StepTimes) -> float:
        if self._to_record > 0:
            self._to_record -= 1
            self._spans += self._compute_spans(times)
            self._spans += self._link_spans(self._rank, times.step, times.forward_begins, times.step_ends)
        return times.backward_ends - self._last_gradient

    def _compute_spans(self, times: StepTimes) -> list[Span]:
        parts = [
            (SpanKind.forward, times.forward_begins, times.backward_begins),
            (SpanKind.backward, times.backward_begins, self._last_gradient),
            (SpanKind.wait, self._last_gradient, times.backward_ends),
            (SpanKind.step, times.backward_ends, times.step_ends),
        ]
        return [
            Span(
                kind,
                "gradients" if kind is SpanKind.wait else kind.name,
                rank=self._rank,
                iteration=times.step,
                begin_seconds=begin,
                end_seconds=end,
            )
            for kind, begin, end in parts
        ]

    def timeline(self) -> list[Span]:
        return self._spans

    def decisions(self) -> list[IterationDecisions]:
        return []

    def finish(self) -> None:
        for hook in self._hooks:
            hook.remove()


class DreamddpMethod:
    """DreamDDP with a plan made beforehand, or with policies."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        profile: Profile,
        link: Link,
        *,
        plan: Plan | None = None,
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        self._model = model
        self._sync = DreamDDP(model, optimizer, plan=plan, policies=policies, profile=profile, link=link)

    @property
    def module(self) -> nn.Module:
        return self._model

    def record(self, iterations: int) -> None:
        self._sync.record(iterations=iterations)

    def exposed_seconds(self, times: StepTimes) -> float:
        stats = self._sync.stats(reset=True)
        return stats.exposed_seconds * stats.iterations

    def timeline(self) -> list[Span]:
        return list(self._sync.timeline())

    def decisions(self) -> list[IterationDecisions]:
        return self._sync.decisions()

    def finish(self) -> None:
        self._sync.finish()
        self._sync.detach()
