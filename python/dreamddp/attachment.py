"""What holds a model, its optimizers and an engine together; made anew where the model changes."""

from __future__ import annotations

import datetime
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dreamddp import agreement, compute_threads, description, log, model_state
from dreamddp._core import Link, Plan, Profile
from dreamddp._runtime import Engine
from dreamddp.arguments import check_arguments, check_fused, check_policies, check_range
from dreamddp.group import DEFAULT_TIMEOUT_SECONDS, explained, make_group
from dreamddp.layers import ModelLayer, find_layers
from dreamddp.loop_hooks import LoopHooks
from dreamddp.model_watch import check_unattached
from dreamddp.planning import Planning, PlanningOptions

MIN_TIMEOUT_SECONDS = 0.1
MAX_TIMEOUT_SECONDS = 1e7


class Attachment:
    """Layers, engine, planning and hooks of a model as it is now. Making one is collective.

    Args:
        group: the ranks that train together; None: all.
        plan, profile, link: as given to `DreamDDP`.

    Raises:
        ValueError: on all ranks, for arguments out of range and where ranks disagree.
        SyncError: where a peer is missing.
    """

    layers: list[ModelLayer]
    engine: Engine
    planning: Planning
    hooks: LoopHooks

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        group: dist.ProcessGroup | None,
        options: PlanningOptions,
        *,
        plan: Plan | str | Path | None,
        profile: Profile | str | Path | None,
        link: Link | None,
        timeout_seconds: float,
        first_iteration: int,
    ) -> None:
        self.optimizers = optimizers
        self.timeout_seconds = timeout_seconds
        # A bad one is an error on all ranks, below: they need a group to agree on that.
        is_valid = MIN_TIMEOUT_SECONDS <= timeout_seconds <= MAX_TIMEOUT_SECONDS
        self.group = make_group(group, timeout_seconds if is_valid else DEFAULT_TIMEOUT_SECONDS)
        self.given_plan: Plan | None = None
        self._model = model
        self._options = options
        self._given_profile: Profile | None = None
        self._given_link = None if link is None else description.link_of_group(link, self.group)
        self._no_sync_depth = 0
        self._pause_depth = 0
        self._num_attachments = 0
        self._control_group: dist.ProcessGroup | None = None

        def describe() -> tuple[dict[str, Any], compute_threads.ComputeThreads]:
            check_range("timeout", timeout_seconds, MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)
            check_arguments(model, optimizers, options, first_iteration=first_iteration)
            check_unattached(model)
            self.given_plan = Plan.load(plan) if isinstance(plan, str | Path) else plan
            check_fused(optimizers, options, self.given_plan)
            self._given_profile = Profile.load(profile) if isinstance(profile, str | Path) else profile
            layers = self._find_layers()
            check_policies([layer.name for layer in layers], options, self.given_plan)
            return (
                description.describe(
                    model,
                    layers,
                    self.given_plan,
                    self._given_profile,
                    self._given_link,
                    first_iteration,
                    options.description(),
                ),
                compute_threads.of_this_rank(),
            )

        answers = agreement.on_all_ranks(describe, self.group, "attaching DreamDDP")
        agreement.require_equal([description for description, _ in answers], "model or arguments")
        if dist.get_rank(self.group) == 0 and all(p.device.type == "cpu" for p in model.parameters()):
            for line in compute_threads.crowded_machines([threads for _, threads in answers]):
                warnings.warn(f"DreamDDP: {line}", stacklevel=3)
        model_state.broadcast([*model.parameters(), *model.buffers()], self.group)
        self._attach(first_iteration)

    def _find_layers(self) -> list[ModelLayer]:
        """Layers of the model as it is now.

        Raises:
            ValueError: for parameters that cannot be averaged, and a plan or profile of another model.
        """
        layers = find_layers(self._model)
        if self.given_plan is not None:
            description.check_plan_fits(self.given_plan, layers)
        if self._given_profile is not None:
            description.check_profile_fits(self._given_profile, layers)
        return layers

    def _attach(self, first_iteration: int) -> None:
        self.layers = self._find_layers()
        if not self.layers:
            warnings.warn(
                "DreamDDP: the model has no trainable parameters; nothing will be sent", stacklevel=4
            )
        self.engine = Engine(
            [(layer.name, list(layer.parameters), list(layer.statistics)) for layer in self.layers],
            self.group,
            staging_bytes=self._options.staging_bytes,
            timeout_seconds=self.timeout_seconds,
            attachment=self._num_attachments,
        )
        self._num_attachments += 1
        self.engine.set_no_sync(self._no_sync_depth > 0)
        self.engine.set_paused(self._pause_depth > 0)
        self.planning = Planning(
            self._options,
            self.layers,
            self.engine,
            self.group,
            given_plan=self.given_plan,
            profile=self._given_profile,
            link=self._given_link,
            first_iteration=first_iteration,
        )
        self.engine.attach()
        self.hooks = LoopHooks(
            self._model,
            self.optimizers,
            self.layers,
            self.engine,
            self.planning,
            self.group,
            attach_again=self.attach_again,
        )
        # The hooks live as long as the model, also where nobody keeps this object. Transfers in flight do not
        # keep the interpreter from ending.
        self._close_engine = weakref.finalize(self.hooks, self.engine.close)
        log.attached(self._model, self.layers, self.group)

    def attach_again(self) -> LoopHooks:
        """The model has changed since attaching: where it has on all ranks, goes on with it as it is now.

        All parameters are averaged once, so that those that are frozen now are equal. Collective.
        """
        doing = f"comparing the model, which has changed: {self.hooks.changes()}"
        control_group = self._group_for_changes(doing)
        iteration = self.hooks.iteration

        def describe() -> dict[str, Any]:
            model = description.describe_model(self._model, self._find_layers())
            return model | {"the iteration of the change": iteration}

        descriptions = agreement.on_all_ranks(describe, control_group, doing)
        agreement.require_equal(
            descriptions,
            "the changed model",
            "Change it in the same way on every rank, in the same iteration.",
        )
        self.engine.finish()
        self.engine.average([parameter for layer in self.layers for parameter in layer.parameters])
        model_state.broadcast(self.hooks.new_parameters(), self.group)
        self._given_link = self.planning.link
        roll_call = self.hooks.roll_call
        self.hooks.remove()
        self._close_engine()
        self._attach(iteration)
        self.hooks.roll_call = roll_call
        return self.hooks

    def _group_for_changes(self, doing: str) -> dist.ProcessGroup:
        """Where other ranks have not changed their models, they must not take what is said of a change for
        one of their averages."""
        if self._control_group is None:
            advice = "change it on all ranks in the same iteration, or detach() before and attach again after"
            with explained(f"{doing} ({advice})"):
                self._control_group = dist.new_group(
                    dist.get_process_group_ranks(self.group),
                    timeout=datetime.timedelta(seconds=self.timeout_seconds),
                    use_local_synchronization=True,
                )
        return self._control_group

    # Both may be nested, and hold over attach_again().

    def enter_no_sync(self) -> None:
        self._no_sync_depth += 1
        self.engine.set_no_sync(True)

    def leave_no_sync(self) -> None:
        self._no_sync_depth -= 1
        self.engine.set_no_sync(self._no_sync_depth > 0)

    def enter_pause(self) -> None:
        self._pause_depth += 1
        self.engine.set_paused(True)

    def leave_pause(self) -> None:
        self._pause_depth -= 1
        self.engine.set_paused(self._pause_depth > 0)
