"""Hooks on the model and the optimizers: they turn a training loop into events of the engine.

Design sections 3 and 9.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.hooks import RemovableHandle

from dreamddp import _core, agreement, fused_update, log, profiling
from dreamddp._core import Plan, Profile
from dreamddp._runtime import Engine
from dreamddp.fused_update import FusedUpdate
from dreamddp.layers import ModelLayer
from dreamddp.loop_warnings import AccumulationWarning, MissingBackwardWarning
from dreamddp.model_watch import ModelWatch
from dreamddp.module_hooks import ModuleHook
from dreamddp.planning import Planning
from dreamddp.read_hooks import ReadHooks
from dreamddp.reads import ReadOrder, ReadWatch, agree_on_reads, summarise
from dreamddp.staleness_scaling import StalenessScaling

if TYPE_CHECKING:
    from dreamddp._runtime import PendingOp
    from dreamddp.joining import RollCall


class LoopHooks:
    """Owns every hook that is not on a gradient: installed when made, gone after `remove()`.

    Watches the reads of the first iteration, then hooks the modules that read, and begins to carry out the
    plan.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        layers: Sequence[ModelLayer],
        engine: Engine,
        planning: Planning,
        group: dist.ProcessGroup,
        attach_again: Callable[[], LoopHooks],
    ) -> None:
        self.order: ReadOrder | None = None
        self.roll_call: RollCall | None = None
        """Told of iterations that begin, while there may be ranks that have run out of data."""
        self._model = model
        self._num_optimizers = len(optimizers)
        self._layers = layers
        self._engine = engine
        self._planning = planning
        self._group = group
        self._attach_again = attach_again
        self._model_watch = ModelWatch(model, layers)
        self._watch: ReadWatch | None = None
        self._read_hooks: ReadHooks | None = None
        self._accumulation = AccumulationWarning()
        self._missing_backward = MissingBackwardWarning()
        self._stepped: set[int] = set()
        self._fused: FusedUpdate | None = None
        self._scaling: StalenessScaling | None = None
        if planning.staleness_decay is not None:
            self._scaling = StalenessScaling(optimizers, layers, planning.staleness_decay)
        self._raised_before: BaseException | None = None
        self._handles: list[RemovableHandle] = [
            model.register_forward_pre_hook(ModuleHook(self._before_forward, before_copy=self.wait)),
            model.register_forward_hook(ModuleHook(self._after_forward), always_call=True),
        ]
        first_backward_ended = weakref.WeakMethod(self._first_backward_ended)

        def unplanned_backward() -> None:
            method = first_backward_ended()
            if method is not None:
                method()

        engine.on_unplanned_backward(unplanned_backward)
        if planning.is_fused:
            self._fused = FusedUpdate(model, optimizers, layers)
            step_layer = weakref.WeakMethod(self._fused.step_layer)

            def layer_update(layer: int) -> None:
                method = step_layer()
                if method is not None:
                    method(layer)

            engine.on_layer_update(layer_update)
        self._step_pre_hooks = [(one, one.register_step_pre_hook(self._before_step)) for one in optimizers]
        self._handles += [handle for _, handle in self._step_pre_hooks]
        for index, optimizer in enumerate(optimizers):
            self._handles.append(optimizer.register_step_post_hook(self._after_step(index)))

    @property
    def is_watching(self) -> bool:
        """Whether the first iteration is under way."""
        return self._watch is not None

    @property
    def iteration(self) -> int:
        """Counted from the start of training."""
        return max(self._engine.iteration, self._planning.first_iteration)

    def is_inside(self, iteration: int) -> bool:
        """Whether this iteration is under way, and its backward still to come."""
        return bool(self._layers) and self.iteration == iteration and not self._engine.awaits_step

    def resume(self, order: ReadOrder, plan: Plan, pending: Sequence[PendingOp]) -> None:
        """Carries a plan out from its first iteration on, with averages that are under way: the reads are
        known from before."""
        self.order = order
        self._carry_out(plan, self._planning.first_iteration, after_backward=False, pending=pending)

    def remove(self) -> None:
        self._stop_watch()
        self._remove_read_hooks()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._model_watch.remove()
        if self._scaling is not None:
            self._scaling.remove()

    @property
    def model_has_changed(self) -> bool:
        """Whether parameters were frozen, unfrozen, converted, added or replaced since attaching."""
        return self._model_watch.has_changed

    def wait(self) -> None:
        """Returns when all parameters may be read."""
        if self._read_hooks is not None:
            self._read_hooks.wait(self._model)

    def wait_for(self, layer: str) -> None:
        """Returns when the layer may be read."""
        if self._read_hooks is not None:
            self._read_hooks.wait_for(self._model, layer)

    def changes(self) -> str:
        """What has changed, for people."""
        return "; ".join(self._model_watch.changes())

    def new_parameters(self) -> list[nn.Parameter]:
        """Parameters of the model that it did not have when it was attached to."""
        return self._model_watch.new_parameters()

    # Events of a rank that has no data left

    def begin_without_data(self) -> None:
        """Ends an iteration whose step never came, as the next forward would."""
        self._stop_watch()
        self._stepped.clear()
        if self._engine.awaits_step:
            self._backward_ended()
        self._engine.forward_starts()

    def iterate_without_data(self) -> None:
        """An iteration that computes nothing: it launches the averages that the other ranks launch, with the
        parameters as they are."""
        if self.model_has_changed:
            self._attach_again().iterate_without_data()
        elif self._layers:
            self._begin_iteration()
            self.complete_without_data()

    def complete_without_data(self) -> None:
        """The rest of an iteration whose backward has not come."""
        self._engine.forward_finishes()
        self._engine.backward_without_data()
        self._step_begins()
        self._engine.step_ends()

    # Events of the training loop

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        if not torch.is_grad_enabled() or _is_in_backward():
            return
        self._raised_before = sys.exc_info()[1]
        if self._scaling is not None:
            self._scaling.end_all()
        self._stepped.clear()
        self._stop_watch()
        if self._fused is not None:
            self._fused.check_whole()
            for optimizer, handle in self._step_pre_hooks:  # what other hooks do to gradients must be seen
                hooks: Any = optimizer._optimizer_step_pre_hooks
                hooks.move_to_end(handle.id)
        if self._engine.awaits_step:  # the last step was skipped, or there is none for each backward
            if self._fused is not None:
                fused_update.reject_missing_step()
            self._backward_ended()
            self._accumulation.step_was_skipped()
        self._missing_backward.forward_begins()
        self._engine.forward_starts()
        if self.roll_call is not None:
            self.roll_call.announce(self.iteration)
        if self.model_has_changed:
            self._attach_again()._before_forward(module, args)
        else:
            self._begin_iteration()

    def _begin_iteration(self) -> None:
        if self.order is None:
            if self._layers:
                self._watch = ReadWatch(self._model, self._layers, self._engine)
        elif self._planning.is_due:
            plan = self._planning.next_plan(self.order)
            if plan is not None:
                self._carry_out(plan, self._engine.iteration, after_backward=False)

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        if _is_in_backward():
            return
        self._engine.forward_finishes()
        if sys.exc_info()[1] is not self._raised_before:  # the forward has raised
            if self._watch is not None:
                self._watch.leave()
            if self._read_hooks is not None:
                self._read_hooks.backward_ended()

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if self._fused is not None:
            if self._fused.is_stepping:
                return None
            if closure is not None:
                fused_update.reject_closure(optimizer)
            if self._engine.awaits_step:  # else there is nothing that was used: a step like any other
                self._fused.step_begins(optimizer)
        if closure is None:
            self._step_begins()
            self._scale(optimizer)
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
            self._scale(optimizer)
            return loss

        return (args[0], closure_and_wait), {key: kwargs[key] for key in kwargs if key != "closure"}

    def _scale(self, optimizer: torch.optim.Optimizer) -> None:
        if self._scaling is not None:
            self._scaling.begin(optimizer, self._engine.staleness())

    def _step_begins(self) -> None:
        self._stop_watch()
        if self._engine.awaits_step:
            self._backward_ended()
        self._engine.step_begins()

    def _after_step(self, index: int) -> Any:
        def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._fused is not None:
                if self._fused.is_stepping:
                    return
                self._fused.step_ends()
            if self._scaling is not None:
                self._scaling.end(optimizer)
            self._stepped.add(index)
            if len(self._stepped) == self._num_optimizers:
                self._stepped.clear()
                if self._fused is not None:
                    self._fused.iteration_ends()
                self._missing_backward.step_ends(had_backward=self._engine.awaits_step)
                self._engine.step_ends()
                self._accumulation.step_ends()

        return hook

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _backward_ended(self) -> None:
        if self._read_hooks is not None:
            self._read_hooks.backward_ended()

    def _first_backward_ended(self) -> None:
        """Reads are known now: hook them, and begin to carry a plan out.

        Called in the backward, where modes that are left come back: the watch is stopped at the step.
        """
        if self._watch is None:
            raise RuntimeError(
                "DreamDDP saw a backward, but no forward of the model that it is attached to, or one without "
                "gradients: call the model itself, not a submodule of it, or attach to what you call; give "
                "checkpoint(model, ..) use_reentrant=False"
            )
        observed = summarise(self._watch)
        with _disable_current_modes():
            self.order = agree_on_reads(
                agreement.gather(observed, self._group, "comparing when layers are read")
            )
            plan = self._planning.first_plan(self.order)
            if self._fused is not None:
                self._fused.step_all()
            self._carry_out(plan, self._planning.first_iteration, after_backward=True)

    def _carry_out(
        self, plan: Plan, iteration: int, *, after_backward: bool, pending: Sequence[PendingOp] = ()
    ) -> None:
        assert self.order is not None
        reads = profiling.untimed_profile(self.order, self._layers, plan.layers)
        reverse = Profile(reads.layers)
        if reads.backward_order and _is_valid(plan, reverse):
            reads = reverse  # any order is safe at run time; the plan's own is the one it was made for
        carried_out = reads
        if self._planning.policies_decide:
            carried_out = _core.with_due_layers(reads, [False] * len(reads.layers))
        self._engine.set_plan(
            plan.to_json(),
            carried_out.to_json(),
            first_iteration=iteration,
            after_backward=after_backward,
            pending=pending,
        )
        if self._planning.policies_decide:
            self._planning.let_policies_decide()
        self._engine.set_repeated(
            [i for i, layer in enumerate(self._layers) if self.order.layers[layer.name].is_repeated]
        )
        if self._planning.policies_decide:
            log.policies_decide(self._group)
        else:
            log.plan_is_made(plan, self._layers, self._planning.profile, self._planning.link, self._group)
        self._remove_read_hooks()
        self._read_hooks = ReadHooks(self._model, self._engine, reads, self.order)

    def _remove_read_hooks(self) -> None:
        if self._read_hooks is not None:
            self._read_hooks.remove()
            self._read_hooks = None


def _is_in_backward() -> bool:
    """Whether a backward runs on this thread: a forward in it recomputes a checkpointed part."""
    return torch._C._current_graph_task_id() >= 0


def _is_valid(plan: Plan, profile: Profile) -> bool:
    try:
        _core.validate_plan(plan, profile)
    except ValueError:
        return False
    return True
