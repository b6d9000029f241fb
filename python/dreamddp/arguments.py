"""Arguments of DreamDDP, checked before ranks compare them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from dreamddp import _core, fused_update
from dreamddp._core import Plan, longest_period, reject
from dreamddp.measured_iterations import MIN_ITERATIONS
from dreamddp.planner_names import check_planner
from dreamddp.planning import PlanningOptions
from dreamddp.policies import policies_json


def check_arguments(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    options: PlanningOptions,
    *,
    first_iteration: int,
) -> None:
    """Raises ValueError naming the argument that is out of range."""
    if isinstance(options.period, int):
        check_range("period", options.period, 1, longest_period)
    elif options.period != "auto":
        reject(
            "period",
            repr(options.period),
            "a whole number of at least 1, or 'auto'",
            "Give 'auto' to have it chosen.",
        )
    check_planner(options.planner, "planner")
    check_range("staging_bytes", options.staging_bytes, 1 << 10, 1 << 40)
    check_range("max_period", options.max_period, 1, longest_period)
    check_range("first_iteration", first_iteration, 0, 1 << 62)
    check_range("profile_iterations", options.profile_iterations, MIN_ITERATIONS, 1_000_000)
    _check_optimizers(model, optimizers)


def check_fused(
    optimizers: Sequence[torch.optim.Optimizer], options: PlanningOptions, plan: Plan | None
) -> None:
    """Raises ValueError where plan or planner and optimizers do not fit the kind of update."""
    if plan is not None:
        fused_update.check_plan(plan, options.fused_update)
    if options.fused_update:
        fused_update.check_optimizers(optimizers)
        if plan is None:
            fused_update.check_planner(options.planner)


def check_policies(layers: Sequence[str], options: PlanningOptions, plan: Plan | None) -> None:
    """Raises ValueError for policies that do not fit the layers, and arguments that do not fit policies."""
    decay = options.staleness_decay
    if decay is not None and not 0 < decay <= 1:
        reject("staleness_decay", decay, "a number above 0 and at most 1", "Use 0.9 for a mild one.")
    if options.policies is None:
        if decay is not None:
            reject("staleness_decay", decay, "nothing without policies", "Give policies=, too.")
        return
    check_range("sketch_size", options.policies.sketch_size, 0, 1 << 24)
    _core.LayerPolicies(layers, policies_json(options.policies.policies))
    for name, value, default in (
        ("plan", plan, None),
        ("planner", options.planner, "balanced"),
        ("period", options.period, "auto"),
        ("fused_update", options.fused_update, False),
    ):
        if value != default:
            reject(
                name,
                "one" if name == "plan" else repr(value),
                "nothing beside policies",
                "Leave it out: policies decide what is averaged when.",
            )


def check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        reject(name, value, f"a number from {least} to {most}", "Give one in this range.")


def _check_optimizers(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    if not optimizers:
        reject(
            "optimizer", "none", "one or several torch.optim.Optimizer", "Give those that update the model."
        )
    ours = {id(parameter) for parameter in model.parameters()}
    for optimizer in optimizers:
        name = type(optimizer).__name__
        wrapped = getattr(optimizer, "optimizer", None)
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(wrapped, torch.optim.Optimizer):
            reject("optimizer", name, "a torch.optim.Optimizer", "Give the optimizer that a wrapper holds.")
        if isinstance(optimizer, torch.optim.LBFGS):
            reject("optimizer", name, "one that evaluates the loss once a step", "Take SGD or AdamW.")
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if parameters and ours.isdisjoint(map(id, parameters)):
            reject(
                "optimizer",
                f"{name} without parameters of the model",
                "one that updates the model",
                "Give the optimizer of this model.",
            )
