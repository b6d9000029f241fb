"""Attaching DreamDDP to a model and its optimizers."""

from __future__ import annotations

import datetime
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from dreamddp import _core, agreement, description
from dreamddp._core import Link, Plan, Profile, Span, SpanKind
from dreamddp._runtime import Engine
from dreamddp.arguments import check_arguments, check_range
from dreamddp.group import DEFAULT_TIMEOUT_SECONDS, explained, make_group, seconds_of
from dreamddp.layers import find_layers
from dreamddp.loop_hooks import LoopHooks
from dreamddp.planning import Planning, PlanningOptions

DEFAULT_PROFILE_ITERATIONS = 12
MIN_TIMEOUT_SECONDS = 0.1
MAX_TIMEOUT_SECONDS = 1e7


@dataclass(frozen=True)
class SyncStats:
    """What synchronisation did and cost on this rank; means over the iterations since the last reset."""

    iterations: int
    iteration_seconds: float
    compute_seconds: float
    exposed_seconds: float
    """Compute waiting for the link."""
    ops_per_iteration: float
    bytes_per_iteration: float
    """Bytes of parameters averaged, per worker."""
    predicted_seconds: float | None
    """Iteration time that the simulator predicts for the plan; None while there is no measured profile."""


class DreamDDP:
    """Partial local SGD for a model: averages some of its parameters in every iteration, while it computes.

    Attaches in place: the model stays the object it is, with the same keys. Use one instance per model, on
    every rank, and run the training loop as before::

        sync = DreamDDP(model, optimizer, period="auto")
        for batch in loader:
            loss = model(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        sync.finish()

    In the first iterations it runs Local SGD while it watches which parameters are read when and measures the
    layers and the link; then it makes its plan and carries it out. Where `plan` is given, that is carried out
    from the first iteration on.

    Not thread-safe: use it from the thread that trains.

    Args:
        model: on every rank the same modules, shapes and dtypes. Parameters and buffers are broadcast from
            rank 0.
        optimizer: one, or several over parts of the model.
        period: iterations within which every parameter is averaged at least once; "auto" takes the smallest
            for which the link keeps up.
        planner: the algorithm that makes the plan; see `dreamddp.planners()`.
        plan: a plan, or the path of a plan file, instead of period and planner.
        profile: a measured profile of this model; saves measuring it.
        link: the link; saves measuring it. `dreamddp.Link()` without a bandwidth is allowed only with a plan
            or with planners that do not look at it.
        process_group: the ranks that train together; by default all. DreamDDP makes a group of its own from
            them, so that other collectives do not come between its own.
        staging_bytes: size of the staging ring, the only memory it needs.
        timeout: how long a rank waits for the others, in seconds or as a timedelta. At half of it a warning
            says who is late.
        max_period: the largest period that "auto" may choose.
        first_iteration: the place in the plan to start from; for a training that goes on.
        profile_iterations: how many iterations to measure before the plan is made; rounded up to whole
            periods.

    Raises:
        ValueError: for arguments out of range, and on all ranks where ranks disagree on model, plan or
            arguments.
        SyncError: where a peer is missing.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        period: int | Literal["auto"] = "auto",
        planner: str = "balanced",
        plan: Plan | str | Path | None = None,
        profile: Profile | str | Path | None = None,
        link: Link | None = None,
        process_group: dist.ProcessGroup | None = None,
        staging_bytes: int = _core.default_staging_bytes,
        timeout: float | datetime.timedelta = DEFAULT_TIMEOUT_SECONDS,
        max_period: int = 100,
        first_iteration: int = 0,
        profile_iterations: int = DEFAULT_PROFILE_ITERATIONS,
    ) -> None:
        if not dist.is_initialized():
            raise ValueError(
                "torch.distributed is not initialised: call torch.distributed.init_process_group() first, "
                "for instance under torchrun"
            )
        seconds = seconds_of(timeout)
        # A bad one is an error on all ranks, below: they need a group to agree on that.
        is_valid = MIN_TIMEOUT_SECONDS <= seconds <= MAX_TIMEOUT_SECONDS
        self._model = model
        self._optimizers = (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer)
        self._group = make_group(process_group, seconds if is_valid else DEFAULT_TIMEOUT_SECONDS)

        options = PlanningOptions(
            period=period,
            planner=planner,
            max_period=max_period,
            profile_iterations=profile_iterations,
            staging_bytes=staging_bytes,
        )

        def describe() -> dict[str, Any]:
            check_range("timeout", seconds, MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)
            check_arguments(model, self._optimizers, options, first_iteration=first_iteration)
            self._layers = find_layers(model)
            self._given_plan = Plan.load(plan) if isinstance(plan, str | Path) else plan
            if self._given_plan is not None:
                description.check_plan_fits(self._given_plan, self._layers)
            self._given_profile = Profile.load(profile) if isinstance(profile, str | Path) else profile
            if self._given_profile is not None:
                description.check_profile_fits(self._given_profile, self._layers)
            return description.describe(
                self._layers, self._given_plan, self._given_profile, first_iteration, options.description()
            )

        descriptions = agreement.on_all_ranks(describe, self._group, "attaching DreamDDP")
        agreement.require_equal(descriptions, "model or arguments")
        if not self._layers:
            warnings.warn(
                "DreamDDP: the model has no trainable parameters; nothing will be sent", stacklevel=2
            )

        self._no_sync_depth = 0
        self._pause_depth = 0
        self._broadcast()
        self._engine = Engine(
            [(layer.name, list(layer.parameters)) for layer in self._layers],
            self._group,
            staging_bytes=staging_bytes,
            timeout_seconds=seconds,
        )
        # Transfers in flight do not keep the interpreter from ending.
        weakref.finalize(self, self._engine.close)
        self._planning = Planning(
            options,
            self._layers,
            self._engine,
            self._group,
            given_plan=self._given_plan,
            profile=self._given_profile,
            link=link,
            first_iteration=first_iteration,
        )
        self._hooks: LoopHooks | None = None
        if self._layers:
            self._engine.attach()
            self._hooks = LoopHooks(
                model, self._optimizers, self._layers, self._engine, self._planning, self._group
            )

    # What the user calls

    @property
    def plan(self) -> Plan | None:
        """The plan that is carried out; None before the first iteration has shown the reads."""
        return self._planning.plan

    @property
    def profile(self) -> Profile | None:
        """The profile that the plan was made for; None while it is being measured."""
        return self._planning.profile

    @property
    def link(self) -> Link | None:
        """The link that the plan was made for; None while it has not been measured."""
        return self._planning.link

    @property
    def iteration(self) -> int:
        """Iterations completed, counted from the start of training."""
        return self._engine.iteration

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """For gradient accumulation: around all micro-batches of an iteration but the last.

        It may enclose the forward, the backward or both.
        """
        self._no_sync_depth += 1
        self._engine.set_no_sync(True)
        try:
            yield
        finally:
            self._no_sync_depth -= 1
            self._engine.set_no_sync(self._no_sync_depth > 0)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """For what takes long on this rank alone, such as an evaluation: other ranks wait for it beyond their
        timeout, for as long as this process is alive.

        On one rank, on some or on all; not collective. Other ranks hear of it within their timeout, and after
        it they wait for a whole timeout again.
        """
        self._pause_depth += 1
        self._engine.set_paused(True)
        try:
            yield
        finally:
            self._pause_depth -= 1
            self._engine.set_paused(self._pause_depth > 0)

    def finish(self) -> None:
        """Makes all ranks equal: waits for what is in flight, then averages all parameters and buffers.
        Collective.

        Buffers of integers (counters) become the largest over the ranks. Training may go on afterwards.

        Raises:
            SyncError: where a peer is missing. Every coordinate is then the local value or the mean.
        """
        self._engine.finish()
        # Ranks that are still in their training would take what follows for an op of the plan.
        self._engine.meet("finish()")
        parameters = [parameter for layer in self._layers for parameter in layer.parameters]
        buffers = [buffer for buffer in self._model.buffers() if buffer.numel() > 0]
        self._engine.average(parameters + [b for b in buffers if b.is_floating_point() or b.is_complex()])
        for buffer in buffers:
            if not (buffer.is_floating_point() or buffer.is_complex()):
                with explained("averaging buffers in finish()"):
                    dist.all_reduce(buffer, dist.ReduceOp.MAX, group=self._group)
        self._engine.rest()

    def detach(self) -> None:
        """Waits for what is in flight and removes every hook; the model is then as it was before
        attaching."""
        if self._hooks is not None:
            self._hooks.remove()
        self._engine.detach()
        self._engine.finish()

    def stats(self, *, reset: bool = False) -> SyncStats:
        """Counters of this rank since the last reset. Does not communicate."""
        total = self._engine.statistics()
        if reset:
            self._engine.reset_statistics()
        count = max(total.iterations, 1)
        return SyncStats(
            iterations=total.iterations,
            iteration_seconds=total.seconds / count,
            compute_seconds=(total.seconds - total.exposed_seconds) / count,
            exposed_seconds=total.exposed_seconds / count,
            ops_per_iteration=total.ops / count,
            bytes_per_iteration=total.num_bytes / count,
            predicted_seconds=self._planning.predicted_seconds(),
        )

    def record(self, iterations: int) -> None:
        """Records the timeline of the next iterations; `timeline()` gives it."""
        check_range("iterations", iterations, 1, 10_000)
        self._engine.record(iterations)

    def timeline(self) -> list[Span]:
        """Spans of this rank recorded so far: compute, waits and the lane's ops, in seconds of a steady
        clock."""
        return [
            Span(SpanKind(kind), name, rank=rank, iteration=iteration, begin_seconds=begin, end_seconds=end)
            for kind, name, rank, iteration, begin, end in self._engine.spans()
        ]

    def measured_profile(self) -> Profile:
        """The profile of the iterations measured so far, the slowest rank in each layer. Collective.

        Rank 0 warns of ranks that are much slower than the others in a layer.

        Raises:
            ValueError: where no complete iteration has been measured yet.
        """
        if self._hooks is None or self._hooks.order is None:
            raise ValueError("no complete iteration was measured: run forward, backward and step first")
        return self._planning.measured_profile(self._hooks.order)

    def _broadcast(self) -> None:
        """Ranks start equal (design section 9.8)."""
        source = dist.get_process_group_ranks(self._group)[0]
        with torch.no_grad():
            for tensor in [*self._model.parameters(), *self._model.buffers()]:
                if tensor.numel() > 0:
                    dense = tensor.detach().contiguous()
                    with explained("sending the model of rank 0 to all ranks"):
                        dist.broadcast(dense, source, group=self._group)
                    tensor.copy_(dense)
