"""What ranks must have in common, and whether a plan or profile is one of this model. Design section 9.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dreamddp._core import Link, Plan, Profile, reject
from dreamddp.layers import ModelLayer, layer_name, reject_lazy


def describe(
    model: nn.Module,
    layers: Sequence[ModelLayer],
    plan: Plan | None,
    profile: Profile | None,
    link: Link | None,
    first_iteration: int,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """Entries that ranks compare one by one, in this order."""
    due = first_due_layer(layers, plan, first_iteration)
    return (
        describe_model(model, layers)
        | {f"the step to start from (first_iteration, layer '{due}' is due first)": first_iteration}
        | arguments
        | {
            "plan": None if plan is None else plan.to_json(),
            "profile": None if profile is None else profile.to_json(),
            "link": None if link is None else repr(link),
        }
    )


def link_of_group(link: Link, group: dist.ProcessGroup) -> Link:
    """The same link between the ranks of the group, however many workers it was written for."""
    return Link(
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        latency_seconds=link.latency_seconds,
        workers=dist.get_world_size(group),
        in_flight=link.in_flight,
    )


def describe_model(model: nn.Module, layers: Sequence[ModelLayer]) -> dict[str, Any]:
    """Everything that attaching broadcasts: parameters, whether trained or frozen, and buffers.

    Raises:
        ValueError: for a sparse one, which cannot be broadcast.
    """
    trained = {id(parameter) for layer in layers for parameter in layer.parameters}
    description: dict[str, Any] = {}
    for number, (name, parameter) in enumerate(model.named_parameters()):
        key = f"parameter '{name}' of layer '{layer_name(name.rpartition('.')[0])}'"
        kind = "trained" if id(parameter) in trained else "frozen"
        description[key] = f"number {number}, {kind}, {_of_tensor(key, parameter)}"
    for number, (name, buffer) in enumerate(model.named_buffers()):
        key = f"buffer '{name}'"
        description[key] = f"number {number}, {_of_tensor(key, buffer)}"
    return description


def _of_tensor(name: str, tensor: torch.Tensor) -> str:
    if nn.parameter.is_lazy(tensor):
        reject_lazy(name)
    if tensor.layout != torch.strided:
        reject(name, f"layout {tensor.layout}", "a dense tensor", "Convert it with to_dense().")
    return f"{tuple(tensor.shape)}, {tensor.dtype}, strides {tensor.stride()}, on {tensor.device.type}"


def first_due_layer(layers: Sequence[ModelLayer], plan: Plan | None, first_iteration: int) -> str:
    if plan is not None and plan.ops:
        place = first_iteration % plan.period
        op = next((op for op in plan.ops if op.launch.iteration >= place), plan.ops[0])
        return plan.layers[op.segments[0].layer]
    return layers[0].name if layers else "none"


def check_profile_fits(profile: Profile, layers: Sequence[ModelLayer]) -> None:
    """Raises ValueError where the profile is one of another model."""
    with_parameters = {layer.name for layer in profile.layers if layer.num_bytes != 0}
    _check_same("profile", with_parameters, {layer.name for layer in profile.layers}, layers)


def check_plan_fits(plan: Plan, layers: Sequence[ModelLayer]) -> None:
    """Raises ValueError where the plan is one of another model."""
    carried = {plan.layers[segment.layer] for op in plan.ops for segment in op.segments}
    _check_same("plan", carried, carried, layers)


def _check_same(what: str, used: set[str], listed: set[str], layers: Sequence[ModelLayer]) -> None:
    ours = {layer.name for layer in layers}
    unknown, missing = sorted(used - ours), sorted(ours - listed)
    if unknown or missing:
        raise ValueError(
            f"{what}: it lists layers that the model lacks ({', '.join(unknown) or 'none'}) and lacks layers "
            f"that the model has ({', '.join(missing) or 'none'}). Make it for this model."
        )
