"""Fused updates: the user's optimizers step each layer inside the backward. Design section 3."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import nn

from dreamddp._core import Plan, Update, planner_can_fuse, planners, reject
from dreamddp.layers import ModelLayer

Group = dict[str, Any]
Settings = dict[str, tuple[Any, int]]


class FusedUpdate:
    """Steps layers with the optimizers as they are: same objects, states and settings, with `param_groups`
    narrowed to the layer. The user's own `step()` then finds no gradients to use.

    Layers are stepped by one thread at a time; everything else is called from the thread that trains, while
    no backward runs.
    """

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], layers: Sequence[ModelLayer]
    ) -> None:
        self._layers = layers
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._parts = [_Parts(optimizer, layers) for optimizer in optimizers]
        self._ours = {id(parameter) for layer in layers for parameter in layer.parameters}
        self._used: dict[int, _UsedGradient] = {}
        self._taken: list[_UsedGradient] = []
        self._half_done: str | None = None
        self.is_stepping = False
        """Whether a layer is being stepped, so that hooks of optimizers may belong to that."""

    def step_layer(self, index: int) -> None:
        """Steps what has a gradient in this layer.

        Raises:
            RuntimeError: for an optimizer that cannot step one layer at a time.
        """
        gradients = [(p, p.grad) for p in self._layers[index].parameters if p.grad is not None]
        if not gradients:
            return
        self.is_stepping = True
        try:
            for parts in self._parts:
                parts.step(index)
        except BaseException as error:
            self._half_done = f"layer '{self._layers[index].name}' ({type(error).__name__}: {error})"
            raise
        finally:
            self.is_stepping = False
        for parameter, gradient in gradients:  # the optimizers may have changed them
            self._used[id(parameter)] = _UsedGradient(parameter, gradient, gradient._version)

    def step_all(self) -> None:
        for index in range(len(self._layers)):
            self.step_layer(index)

    def check_whole(self) -> None:
        """Raises RuntimeError where an optimizer has raised inside a backward: layers behind it are stepped,
        those in front are not."""
        if self._half_done is not None:
            raise RuntimeError(
                f"DreamDDP: fused_update=True stepped inside a backward, and an optimizer raised in "
                f"{self._half_done}: some layers have been updated, others not. Go on from a checkpoint."
            )

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """The user's step of the iteration: takes the gradients away that were used in the backward.

        Raises:
            RuntimeError: where they are no longer what was used, as by clipping or a loss scaler.
        """
        self.step_ends()  # the step before has raised
        name = f"{type(optimizer).__name__}.step()"
        for attribute in ("grad_scale", "found_inf"):  # by which a GradScaler tells fused optimizers
            if getattr(optimizer, attribute, None) is not None:
                raise RuntimeError(
                    f"DreamDDP: a GradScaler calls {name}, but fused_update=True has stepped inside the "
                    "backward already, with gradients that were scaled. Train without one, in bfloat16 for "
                    "instance, or attach with fused_update=False."
                )
        for parts in self._parts:
            if parts.optimizer is optimizer:
                parts.check_settings(name)
        taken = []
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) not in self._ours:
                continue
            used = self._used.get(id(parameter))
            if (parameter.grad is not None) if used is None else used.has_changed:
                raise RuntimeError(
                    f"DreamDDP: the gradient of parameter '{self._names[id(parameter)]}' has changed between "
                    f"its backward and {name}, but fused_update=True has used it inside the backward. Leave "
                    "out what changes gradients behind the backward (clip_grad_norm_, a GradScaler, "
                    "zero_grad), or attach with fused_update=False."
                )
            if used is not None:
                taken.append(used)
        self._taken = taken
        for used in taken:
            used.parameter.grad = None

    def step_ends(self) -> None:
        """Gives the gradients back, for who looks at them.

        Raises:
            RuntimeError: where a hook of the optimizer has set others.
        """
        taken, self._taken = self._taken, []
        for used in taken:
            if used.parameter.grad is not None:
                raise RuntimeError(
                    f"DreamDDP: a hook of the optimizer sets the gradient of parameter "
                    f"'{self._names[id(used.parameter)]}', but fused_update=True has stepped inside the "
                    "backward already. Leave the hook out, or attach with fused_update=False."
                )
            used.parameter.grad = used.gradient

    def iteration_ends(self) -> None:
        """All optimizers have stepped."""
        self._used.clear()
        for parts in self._parts:
            parts.iteration_ends()


@dataclass(frozen=True)
class _UsedGradient:
    parameter: nn.Parameter
    gradient: torch.Tensor
    version: int
    """After it was used."""

    @property
    def has_changed(self) -> bool:
        return self.parameter.grad is not self.gradient or self.gradient._version != self.version


class _Parts:
    """An optimizer, and which parameters of which of its groups belong to each layer."""

    def __init__(self, optimizer: torch.optim.Optimizer, layers: Sequence[ModelLayer]) -> None:
        self.optimizer = optimizer
        self._layer_of = {id(p): index for index, layer in enumerate(layers) for p in layer.parameters}
        self._seen: list[tuple[Group, list[int]]] = []
        self._of_layer: dict[int, list[tuple[Group, list[nn.Parameter]]]] = {}
        self._has_looked = False  # in this iteration
        self._used_settings: dict[int, tuple[Group, Settings]] = {}  # in this iteration, by group
        self._counters_are_checked = False

    def step(self, layer: int) -> None:
        self._look()
        parts = self._of_layer.get(layer)
        if not parts:
            return
        optimizer = self.optimizer
        all_groups = optimizer.param_groups
        whole = [group["params"] for group, _ in parts]
        settings = [_settings(group) for group, _ in parts]
        for (group, _), used in zip(parts, settings, strict=True):
            self._used_settings.setdefault(id(group), (group, used))
        counters = None if self._counters_are_checked else _counters(optimizer)
        try:
            optimizer.param_groups = [group for group, _ in parts]
            for group, parameters in parts:
                group["params"] = list(parameters)
            _step_without_hooks(optimizer)
        finally:
            optimizer.param_groups = all_groups
            for (group, _), parameters in zip(parts, whole, strict=True):
                group["params"] = parameters
        for (group, _), before in zip(parts, settings, strict=True):
            key = _first_change(before, _settings(group))
            if key is not None:
                self._reject_counter(f"'{key}' of its param_groups")
        if counters is not None:
            key = _first_change(counters, _counters(optimizer))
            if key is not None:
                self._reject_counter(f"'{key}' of its own")
            self._counters_are_checked = True

    def check_settings(self, step: str) -> None:
        """Raises RuntimeError where settings are not those that layers were stepped with."""
        for group, used in self._used_settings.values():
            key = _first_change(used, _settings(group))
            if key is not None:
                raise RuntimeError(
                    f"DreamDDP: '{key}' of the optimizer's param_groups has changed between a backward and "
                    f"{step}, but fused_update=True has stepped inside the backward. Set it before the "
                    "backward or behind the step, or attach with fused_update=False."
                )

    def iteration_ends(self) -> None:
        self._has_looked = False
        self._used_settings.clear()

    def _look(self) -> None:
        """Anew where groups were added, changed or loaded; once in an iteration."""
        if self._has_looked:
            return
        self._has_looked = True
        groups = self.optimizer.param_groups
        seen = [(group, [id(parameter) for parameter in group["params"]]) for group in groups]
        if len(seen) == len(self._seen) and all(
            now is before and ids == ids_before
            for (now, ids), (before, ids_before) in zip(seen, self._seen, strict=True)
        ):
            return
        self._seen = seen
        self._of_layer = defaultdict(list)
        for group in groups:
            of_layer: dict[int, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if id(parameter) in self._layer_of:
                    of_layer[self._layer_of[id(parameter)]].append(parameter)
            for layer, parameters in of_layer.items():
                self._of_layer[layer].append((group, parameters))

    def _reject_counter(self, what: str) -> NoReturn:
        raise RuntimeError(
            f"DreamDDP: {type(self.optimizer).__name__} changes {what} in a step, and fused_update=True "
            "makes one for each layer. Take an optimizer that keeps its state by parameter, such as SGD or "
            "AdamW, or attach with fused_update=False."
        )


def _settings(group: Group) -> Settings:
    return {key: _with_version(value) for key, value in group.items() if key != "params"}


def _counters(optimizer: torch.optim.Optimizer) -> Settings:
    """Numbers that are the optimizer's own, not those of a group or a parameter."""
    own = {key: value for key, value in vars(optimizer).items() if _is_number(value)}
    of_state = {key: value for key, value in optimizer.state.items() if not isinstance(key, torch.Tensor)}
    return {str(key): _with_version(value) for key, value in (own | of_state).items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_version(value: Any) -> tuple[Any, int]:
    """Tensors may change in place."""
    return value, value._version if isinstance(value, torch.Tensor) else 0


def _first_change(before: Settings, after: Settings) -> str | None:
    for key in before.keys() | after.keys():
        if key not in before or key not in after:
            return key
        (old, old_version), (new, new_version) = before[key], after[key]
        if old_version != new_version:
            return key
        if old is new:
            continue
        if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor) or old != new:
            return key
    return None


def _step_without_hooks(optimizer: torch.optim.Optimizer) -> None:
    """Hooks of the user's come with the user's step, when all layers have been stepped."""
    step: Any = type(optimizer).step
    if getattr(step, "hooked", False):
        step = step.__wrapped__
    step(optimizer)


def check_optimizers(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Raises ValueError for an optimizer that cannot step inside a backward."""
    for optimizer in optimizers:
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            reject(
                "optimizer with fused_update",
                f"{type(optimizer).__name__}, whose step() needs a closure",
                "one that steps with the gradients that are there",
                "Take SGD or AdamW, or leave fused_update out.",
            )


def check_planner(planner: str) -> None:
    """Raises ValueError for a planner that makes no plans with fused updates."""
    if not planner_can_fuse(planner):
        able = ", ".join(name for name, _ in planners() if planner_can_fuse(name))
        reject(
            "planner with fused_update",
            f"'{planner}'",
            f"one of {able}",
            "Take one of them, or leave fused_update out.",
        )


def check_plan(plan: Plan, fused_update: bool, field: str = "plan") -> None:
    """Raises ValueError for a plan that was made for the other kind of update."""
    if (plan.update is Update.fused) == fused_update:
        return
    if fused_update:
        reject(
            f"{field} with fused_update",
            "one for steps behind the backward",
            'one with "update": "fused"',
            "Make it with fused_update=True (`dreamddp plan --fused`), or leave fused_update out.",
        )
    reject(
        field,
        'one with "update": "fused"',
        "one for steps behind the backward",
        "Attach with fused_update=True, or make the plan without it.",
    )


def reject_closure(optimizer: torch.optim.Optimizer) -> NoReturn:
    raise RuntimeError(
        f"DreamDDP: {type(optimizer).__name__}.step() was called with a closure, but fused_update=True steps "
        "inside the backward. Call the backward in front of step(), without a closure, or attach with "
        "fused_update=False."
    )


def reject_missing_step() -> NoReturn:
    raise RuntimeError(
        "DreamDDP: a forward begins, but no step() of all optimizers has followed the backward before. "
        "fused_update=True has updated the parameters in it. Put all but the last backward of an iteration "
        "under no_sync(); leave batches out with skip_step(); train without a GradScaler. Or attach with "
        "fused_update=False."
    )
