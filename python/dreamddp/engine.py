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
from torch.utils.hooks import RemovableHandle

from dreamddp import _core, agreement, description, profiling
from dreamddp._core import Link, Plan, Profile, Span, SpanKind
from dreamddp._runtime import Engine
from dreamddp.arguments import check_arguments, check_range
from dreamddp.layers import find_layers
from dreamddp.measured_iterations import COLD_ITERATIONS
from dreamddp.read_hooks import ReadHooks
from dreamddp.reads import ReadOrder, ReadWatch, agree_on_reads, summarise

DEFAULT_PROFILE_ITERATIONS = 12


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
        timeout: how long a rank waits for the others, in seconds or as a timedelta.
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
        timeout: float | datetime.timedelta = 300.0,
        max_period: int = 100,
        first_iteration: int = 0,
        profile_iterations: int = DEFAULT_PROFILE_ITERATIONS,
    ) -> None:
        if not dist.is_initialized():
            raise ValueError(
                "torch.distributed is not initialised: call torch.distributed.init_process_group() first, "
                "for instance under torchrun"
            )
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
        check_range("timeout", seconds, 0.1, 1e7)
        self._model = model
        self._optimizers = (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer)
        ranks = dist.get_process_group_ranks(process_group or dist.group.WORLD)
        self._group: dist.ProcessGroup = dist.new_group(
            ranks,
            timeout=datetime.timedelta(seconds=seconds),
            use_local_synchronization=process_group is not None,
        )

        def describe() -> dict[str, Any]:
            check_arguments(
                model,
                self._optimizers,
                period=period,
                planner=planner,
                staging_bytes=staging_bytes,
                max_period=max_period,
                first_iteration=first_iteration,
                profile_iterations=profile_iterations,
            )
            self._layers = find_layers(model)
            self._given_plan = Plan.load(plan) if isinstance(plan, str | Path) else plan
            if self._given_plan is not None:
                description.check_plan_fits(self._given_plan, self._layers)
            self._profile = Profile.load(profile) if isinstance(profile, str | Path) else profile
            if self._profile is not None:
                description.check_profile_fits(self._profile, self._layers)
            arguments = {
                "period": period,
                "planner": planner,
                "max_period": max_period,
                "profile_iterations": profile_iterations,
                "staging_bytes": staging_bytes,
            }
            return description.describe(
                self._layers, self._given_plan, self._profile, first_iteration, arguments
            )

        descriptions = agreement.on_all_ranks(describe, self._group, "attaching DreamDDP")
        agreement.require_equal(descriptions, "model or arguments")
        if not self._layers:
            warnings.warn(
                "DreamDDP: the model has no trainable parameters; nothing will be sent", stacklevel=2
            )

        self._period = period
        self._planner = planner
        self._link = link
        self._staging_bytes = staging_bytes
        self._max_period = max_period
        self._first_iteration = first_iteration
        self._plan: Plan | None = None
        self._profile_end: int | None = None
        self._profile_iterations = profile_iterations
        self._order: ReadOrder | None = None
        self._watch: ReadWatch | None = None
        self._read_hooks: ReadHooks | None = None
        self._no_sync_depth = 0
        self._stepped: set[int] = set()
        self._handles: list[RemovableHandle] = []
        self._broadcast()
        self._engine = Engine(
            [(layer.name, list(layer.parameters)) for layer in self._layers],
            self._group,
            staging_bytes=staging_bytes,
            timeout_seconds=seconds,
        )
        # Transfers in flight do not keep the interpreter from ending.
        weakref.finalize(self, self._engine.close)
        if self._layers:
            self._attach()

    # What the user calls

    @property
    def plan(self) -> Plan | None:
        """The plan that is carried out; None before the first iteration has shown the reads."""
        return self._plan

    @property
    def profile(self) -> Profile | None:
        """The profile that the plan was made for; None while it is being measured."""
        return self._profile

    @property
    def link(self) -> Link | None:
        """The link that the plan was made for; None while it has not been measured."""
        return self._link

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

    def finish(self) -> None:
        """Makes all ranks equal: waits for what is in flight, then averages all parameters and buffers.
        Collective.

        Buffers of integers (counters) become the largest over the ranks. Training may go on afterwards.

        Raises:
            SyncError: where a peer is missing. Every coordinate is then the local value or the mean.
        """
        self._engine.finish()
        parameters = [parameter for layer in self._layers for parameter in layer.parameters]
        buffers = [buffer for buffer in self._model.buffers() if buffer.numel() > 0]
        self._engine.average(parameters + [b for b in buffers if b.is_floating_point() or b.is_complex()])
        for buffer in buffers:
            if not (buffer.is_floating_point() or buffer.is_complex()):
                dist.all_reduce(buffer, dist.ReduceOp.MAX, group=self._group)

    def detach(self) -> None:
        """Waits for what is in flight and removes every hook; the model is then as it was before
        attaching."""
        self._stop_watch()
        self._remove_read_hooks()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
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
            predicted_seconds=self._predicted_seconds(),
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
        if self._order is None:
            raise ValueError("no complete iteration was measured: run forward, backward and step first")
        samples = self._engine.take_samples()[COLD_ITERATIONS - 1 :]
        times = agreement.on_all_ranks(lambda: profiling.median_times(samples), self._group, "profiling")
        profile = profiling.untimed_profile(self._order, self._layers)
        if dist.get_rank(self._group) == 0:
            for line in profiling.slow_ranks([layer.name for layer in profile.layers], times):
                warnings.warn(f"DreamDDP: {line}", stacklevel=2)
        return profiling.slowest(profile, times)

    # Attaching

    def _broadcast(self) -> None:
        """Ranks start equal (design section 9.8)."""
        source = dist.get_process_group_ranks(self._group)[0]
        with torch.no_grad():
            for tensor in [*self._model.parameters(), *self._model.buffers()]:
                if tensor.numel() > 0:
                    dense = tensor.detach().contiguous()
                    dist.broadcast(dense, source, group=self._group)
                    tensor.copy_(dense)

    def _attach(self) -> None:
        self._engine.attach()
        self._handles.append(self._model.register_forward_pre_hook(self._before_forward))
        self._handles.append(self._model.register_forward_hook(self._after_forward))
        for index, optimizer in enumerate(self._optimizers):
            self._handles.append(optimizer.register_step_pre_hook(self._before_step))
            self._handles.append(optimizer.register_step_post_hook(self._after_step(index)))

    # Events of the training loop

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        if not torch.is_grad_enabled():
            return
        self._stepped.clear()
        if self._order is None and self._engine.awaits_step:  # the first step was skipped
            self._first_backward_ended()
        self._engine.forward_starts()
        if self._order is None:
            self._stop_watch()
            self._watch = ReadWatch(self._model, self._layers)
        elif self._profile_end is not None and self._engine.iteration >= self._profile_end:
            self._make_plan()

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        self._engine.forward_finishes()

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._step_begins()
            return None
        called = False

        def closure_and_wait() -> Any:
            """The forward and backward of the iteration are in the closure: the step begins behind it."""
            nonlocal called
            if called:
                raise RuntimeError(
                    f"DreamDDP: {type(optimizer).__name__} calls the closure of a step more than once; "
                    "expected once, as every call is an iteration. Take an optimizer that does."
                )
            called = True
            loss = closure()
            self._step_begins()
            return loss

        return (args[0], closure_and_wait), {key: kwargs[key] for key in kwargs if key != "closure"}

    def _step_begins(self) -> None:
        if self._order is None and self._engine.awaits_step:
            self._first_backward_ended()
        self._engine.step_begins()

    def _after_step(self, index: int) -> Any:
        def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._stepped.add(index)
            if len(self._stepped) == len(self._optimizers):
                self._stepped.clear()
                self._engine.step_ends()

        return hook

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _first_backward_ended(self) -> None:
        """Reads are known now: hook them, and begin to carry a plan out."""
        if self._watch is None:
            raise RuntimeError(
                "DreamDDP saw a backward, but no forward of the model that it is attached to: call the model "
                "itself, not a submodule of it, or attach to what you call"
            )
        watch = self._watch
        self._stop_watch()
        observed = agreement.gather(summarise(watch), self._group, "comparing when layers are read")
        self._order = agree_on_reads(observed)
        if self._given_plan is not None:
            self._plan = self._given_plan
        elif self._profile is not None:
            self._plan = self._agreed_plan(self._profile)
        else:
            self._plan = self._local_sgd_while_measuring()
        self._carry_out(self._plan, after_backward=True)

    def _local_sgd_while_measuring(self) -> Plan:
        assert self._order is not None
        if self._period == "auto":
            period = count = self._profile_iterations
        else:
            period = self._period
            count = -(-self._profile_iterations // period) * period
        self._profile_end = self._first_iteration + count
        self._engine.set_sampling(True)
        profile = profiling.untimed_profile(self._order, self._layers)
        return _core.make_plan("local-sgd", profile, Link(bandwidth_bytes_per_second=1e9), period=period)

    def _make_plan(self) -> None:
        """Measuring is over, and an iteration is about to begin: plan, and go on with that."""
        self._profile_end = None
        self._engine.set_sampling(False)
        self._engine.finish()
        self._profile = self.measured_profile()
        self._plan = self._agreed_plan(self._profile)
        self._carry_out(self._plan, after_backward=False)

    def _agreed_plan(self, profile: Profile) -> Plan:
        if self._link is None:
            self._link = profiling.measure_link(self._group, self._layers[0].parameters[0].device)
        plan = self._plan_for(profile, self._link)
        plans = agreement.gather(plan.to_json(), self._group, "comparing plans")
        agreement.require_equal([{"the plan": text} for text in plans], "the plan")
        return plan

    def _plan_for(self, profile: Profile, link: Link) -> Plan:
        if self._period == "auto":
            period = _core.choose_period(
                profile, link, max_period=self._max_period, slack=_core.training_slack
            )
        else:
            period = self._period
        # No memory beyond the ring: held and carried averages come only with a plan that is given.
        return _core.make_plan(self._planner, profile, link, period=period, slack=_core.training_slack)

    def _carry_out(self, plan: Plan, *, after_backward: bool) -> None:
        assert self._order is not None
        reads = profiling.untimed_profile(self._order, self._layers, plan.layers)
        reverse = Profile(reads.layers)
        if reads.backward_order and _is_valid(plan, reverse):
            reads = reverse  # any order is safe at run time; the plan's own is the one it was made for
        self._engine.set_plan(
            plan.to_json(),
            reads.to_json(),
            first_iteration=self._first_iteration if after_backward else self._engine.iteration,
            after_backward=after_backward,
        )
        self._remove_read_hooks()
        self._read_hooks = ReadHooks(self._model, self._engine, reads, self._order)

    def _remove_read_hooks(self) -> None:
        if self._read_hooks is not None:
            self._read_hooks.remove()
            self._read_hooks = None

    def _predicted_seconds(self) -> float | None:
        if self._profile is None or self._link is None or self._plan is None or self._profile_end is not None:
            return None
        return _core.simulate(self._plan, self._profile, self._link).iteration_seconds


def _is_valid(plan: Plan, profile: Profile) -> bool:
    try:
        _core.validate_plan(plan, profile)
    except ValueError:
        return False
    return True
