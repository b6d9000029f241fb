"""Attaching DreamDDP to a model and its optimizers."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from dreamddp import (
    _core,
    agreement,
    checkpoint,
    joining,
    log,
    model_state,
    policy_training,
)
from dreamddp._core import Link, Plan, Profile, Span, SpanKind
from dreamddp._runtime import Engine, default_sketch_size
from dreamddp.arguments import check_range
from dreamddp.attachment import Attachment
from dreamddp.group import DEFAULT_TIMEOUT_SECONDS, seconds_of
from dreamddp.layers import ModelLayer
from dreamddp.loop_hooks import LoopHooks
from dreamddp.moments import average_moments as average_moments_of
from dreamddp.planning import Planning, PlanningOptions
from dreamddp.policies import Policies
from dreamddp.policy_training import IterationDecisions, PolicyOptions
from dreamddp.sync_stats import SyncStats, means_of
from dreamddp.waiting_reads import WaitingReads

DEFAULT_PROFILE_ITERATIONS = 12


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
        link: the link; saves measuring it. Its `workers` is taken to be the number of ranks.
            `dreamddp.Link()` without a bandwidth is allowed only with a plan or with planners that do not
            look at it.
        process_group: the ranks that train together; by default all. DreamDDP makes a group of its own from
            them, so that other collectives do not come between its own.
        staging_bytes: size of the staging ring. More memory is taken by a given plan with held or carried
            averages, by policies that compare gradients, and on a GPU over Gloo, where there are two rings.
        timeout: how long a rank waits for the others, in seconds or as a timedelta. At half of it a warning
            says who is late.
        max_period: the largest period that "auto" may choose.
        first_iteration: the place in the plan to start from; for a training that goes on.
        profile_iterations: how many iterations to measure before the plan is made; rounded up to whole
            periods.
        fused_update: the optimizers step each layer inside the backward, as soon as its gradient is there,
            and averages have until the next forward. For optimizers that keep their state by parameter;
            gradients must stay as the backward leaves them. See docs/training.md.
        policies: rules that decide while training which layers are averaged in an iteration, instead of a
            plan: one for all layers, or by patterns of names. See docs/policies.md.
        staleness_decay: with policies, in each step a layer's learning rate is multiplied with this to the
            power of the local steps since its last average; above 0, at most 1. None: it is not. Optimizers
            must keep their state by parameter.
        sketch_size: numbers that stand for a layer's gradient where a policy compares it with an earlier one;
            0 keeps whole copies, which takes as much memory as the model.

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
        fused_update: bool = False,
        policies: Policies | None = None,
        staleness_decay: float | None = None,
        sketch_size: int = default_sketch_size,
    ) -> None:
        if not dist.is_initialized():
            raise ValueError(
                "torch.distributed is not initialised: call torch.distributed.init_process_group() first, "
                "for instance under torchrun"
            )
        self._attachment = Attachment(
            model,
            (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer),
            process_group,
            PlanningOptions(
                period=period,
                planner=planner,
                max_period=max_period,
                profile_iterations=profile_iterations,
                staging_bytes=staging_bytes,
                fused_update=fused_update,
                policies=None
                if policies is None
                else PolicyOptions(policies=policies, sketch_size=sketch_size),
                staleness_decay=staleness_decay,
            ),
            plan=plan,
            profile=profile,
            link=link,
            timeout_seconds=seconds_of(timeout),
            first_iteration=first_iteration,
        )
        self._model = model
        self._group = self._attachment.group
        self._vote_group: dist.ProcessGroup | None = None

    # Those of now: they are made anew where the model has changed.

    @property
    def _layers(self) -> list[ModelLayer]:
        return self._attachment.layers

    @property
    def _engine(self) -> Engine:
        return self._attachment.engine

    @property
    def _planning(self) -> Planning:
        return self._attachment.planning

    @property
    def _hooks(self) -> LoopHooks:
        return self._attachment.hooks

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
        return self._hooks.iteration

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """For gradient accumulation: around all micro-batches of an iteration but the last.

        It may enclose the forward, the backward or both.
        """
        self._attachment.enter_no_sync()
        try:
            yield
        finally:
            self._attachment.leave_no_sync()

    @contextmanager
    def join(self) -> Iterator[None]:
        """Around a training loop whose data may end earlier on some ranks. Collective::

            with sync.join():
                for batch in loader:
                    ...
            sync.finish()

        A rank whose loop is over stays in it until all loops are: it computes nothing, but takes part in the
        averages of the others, with its own values, which count like those of every rank. An iteration that
        it has begun and not stepped is ended without a step. All ranks leave at the same iteration. An
        exception leaves at once.

        Raises:
            ValueError: where gradients are averaged: a rank that makes no steps would not stay equal; with
                fused updates.
            SyncError: where a peer is missing.
        """
        joining.check_can_join(self._planning)
        group = self._votes()
        with joining.join(lambda: self._hooks, group):
            yield

    def skip_step(self, bad: bool) -> bool:
        """Whether any rank has a bad batch in this iteration, so that all leave it out together. Collective;
        waits for the slowest rank's forward. To be called between forward and backward::

            loss = model(batch)
            if sync.skip_step(not loss.isfinite()):
                continue
            loss.backward()

        The place in the plan does not advance; an average that began in the forward is carried out. Not
        inside `join()`, where some ranks compute no loss.

        Raises:
            RuntimeError: inside `join()`, and behind a backward.
            SyncError: where a peer is missing.
        """
        joining.check_can_skip(self._hooks, self._engine)
        return joining.any_says(
            bool(bad), self._votes(), f"agreeing whether to skip iteration {self.iteration}"
        )

    def _votes(self) -> dist.ProcessGroup:
        if self._vote_group is None:
            self._vote_group = joining.make_vote_group(self._group, self._attachment.timeout_seconds)
        return self._vote_group

    @contextmanager
    def pause(self) -> Iterator[None]:
        """For what takes long on this rank alone, such as an evaluation: other ranks wait for it beyond their
        timeout, for as long as this process is alive.

        On one rank, on some or on all; not collective. Other ranks hear of it within their timeout, and after
        it they wait for a whole timeout again.
        """
        self._attachment.enter_pause()
        try:
            yield
        finally:
            self._attachment.leave_pause()

    def finish(self, *, average_moments: bool = False) -> None:
        """Makes all ranks equal: waits for what is in flight, then averages all parameters and buffers.
        Collective.

        Buffers of integers (counters) become the largest over the ranks. Training may go on afterwards.

        Args:
            average_moments: also average what the optimizers keep in the shape of a parameter (momentum,
                second moments), which is local to each rank otherwise; for a training that goes on.

        Raises:
            ValueError: where ranks' optimizers keep different moments, or another rank makes another call.
            SyncError: where a peer is missing. Every coordinate is then the local value or the mean.
        """
        if self._hooks.model_has_changed:
            self._attachment.attach_again()
        self._engine.finish()
        self._meet("finish(average_moments=True)" if average_moments else "finish()")
        if average_moments:
            average_moments_of(self._attachment.optimizers, self._engine, self._group)
        parameters = [parameter for layer in self._layers for parameter in layer.parameters]
        model_state.average(parameters, self._model.buffers(), self._engine, self._group)
        self._engine.all_are_averaged()
        self._engine.rest()
        log.finished(self.iteration, self._group)

    def _meet(self, call: str) -> None:
        """Returns when every rank is in the same call of this object. Collective.

        Raises:
            ValueError: on all ranks, where one has made another call.
            SyncError: where a peer is missing.
        """
        # Ranks that are still in their training would take what follows for an op of the plan.
        self._engine.meet(call)
        agreement.require_same_call(agreement.gather(call, self._group, call))

    def wait(self) -> None:
        """Returns when no average that is in flight changes parameters any more: for code that reads them by
        itself. Local.

        A forward of the model or of one of its modules waits by itself, and so do `state_dict()` and
        copying the model. Reading a tensor, as in `linear(x, model.head.weight)` outside the model's forward,
        does not: call this before, or see `waiting_reads()`. Before parameters are written, call `finish()`.
        """
        self._hooks.wait()

    @contextmanager
    def waiting_reads(self) -> Iterator[None]:
        """Around code that reads parameters in ways of its own, or the whole loop, to find out whether it
        does: every torch function that this thread calls on a parameter, or on a view of one, waits until no
        average in flight changes that layer. Local.

        It makes each call of a torch function some microseconds slower. It does not see inside
        `loss.backward()`, compiled and scripted functions, nor memory that is shared with NumPy.
        """
        with WaitingReads(lambda: self._layers, lambda layer: self._hooks.wait_for(layer)):
            yield

    def state_dict(self) -> dict[str, Any]:
        """What it takes, beside the states of model and optimizers, to go on exactly here: bit for bit the
        training that was not interrupted. To be called between two iterations. Local.

        Between averages ranks differ, so every rank saves its own model, optimizers and this. Averages in
        place that are under way are waited for; what held and carried averages are going to write is part of
        the state. For one model out of all ranks, see `averaged_state_dict()`.

        Returns:
            A flat dict of numbers and texts, with the same keys at any time.

        Raises:
            RuntimeError: between a backward and its step.
            SyncError: where an average has failed.
        """
        return checkpoint.save(self._layers, self._engine, self._planning, self._hooks.order, self._group)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict()` gave: its plan, profile and link are used, whatever the arguments
        were. Collective.

        Attaching broadcasts rank 0's model, so the order is: attach, load the rank's own states of model and
        optimizers, then this, before the first iteration. A state that was saved while layers were measured
        has them measured anew.

        Raises:
            ValueError: on all ranks, for a state of another model, rank or number of ranks, another plan than
                the one given, and states that do not belong together.
            RuntimeError: after the first forward.
            SyncError: where a peer is missing.
        """
        checkpoint.load(
            state, self._layers, self._planning, self._hooks, self._attachment.given_plan, self._group
        )

    def averaged_state_dict(self) -> dict[str, Any]:
        """The model's state with the means over all ranks, in tensors of its own; the training is as before.
        To be called between two iterations, on all ranks. Collective.

        It has the model's own keys and loads anywhere, with any number of ranks. Integers (counters) are the
        largest over the ranks.

        Raises:
            ValueError: where another rank makes another call.
            SyncError: where a peer is missing.
        """
        self._engine.pending()
        self._meet("averaged_state_dict()")
        return checkpoint.averaged_state(self._model, self._engine, self._group)

    def detach(self) -> None:
        """Waits for what is in flight and removes every hook; the model is then as it was before
        attaching.

        Raises:
            RuntimeError: between a backward and its step, with fused updates.
        """
        if self._planning.is_fused and self._engine.awaits_step:
            raise RuntimeError(
                "DreamDDP.detach(): called between a backward, which has updated the parameters already "
                "(fused_update=True), and its step. Call it behind optimizer.step()."
            )
        self._hooks.remove()
        self._engine.detach()
        self._engine.finish()

    def stats(self, *, reset: bool = False) -> SyncStats:
        """Counters of this rank since the last reset. Does not communicate."""
        total = self._engine.statistics()
        if reset:
            self._engine.reset_statistics()
        return means_of(total, self._planning.predicted_seconds())

    def decisions(self) -> list[IterationDecisions]:
        """What the policies have decided, of the latest 4096 iterations at most; the same on all ranks.
        Empty without policies, and while layers are measured. Does not communicate."""
        return policy_training.decisions(self._engine, [layer.name for layer in self._layers])

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
        if self._hooks.order is None:
            raise ValueError("no complete iteration was measured: run forward, backward and step first")
        return self._planning.measured_profile(self._hooks.order)
