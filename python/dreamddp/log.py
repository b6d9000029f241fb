"""What the library says about a training: once each, on rank 0, through `logging.getLogger("dreamddp")`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch.distributed as dist
from torch import nn

from dreamddp import _core
from dreamddp._core import Link, Plan, Profile, format_num_bytes, format_seconds
from dreamddp.layers import ModelLayer

logger = logging.getLogger("dreamddp")


def attached(model: nn.Module, layers: Sequence[ModelLayer], group: dist.ProcessGroup) -> None:
    num_parameters = sum(len(layer.parameters) for layer in layers)
    num_bytes = sum(layer.num_bytes for layer in layers)
    _say(
        group,
        f"attached to {type(model).__name__}: {len(layers)} layers, {num_parameters} parameters, "
        f"{format_num_bytes(num_bytes)}",
    )


def plan_is_made(
    plan: Plan,
    layers: Sequence[ModelLayer],
    profile: Profile | None,
    link: Link | None,
    group: dist.ProcessGroup,
) -> None:
    sizes = {layer.name: layer.num_bytes for layer in layers}
    num_bytes = sum(
        (segment.end - segment.begin) * sizes.get(plan.layers[segment.layer], 0)
        for op in plan.ops
        for segment in op.segments
    )
    text = (
        f"plan '{plan.planner}': period {plan.period}, {len(plan.ops) / plan.period:.3g} ops and "
        f"{format_num_bytes(num_bytes / plan.period)} an iteration"
    )
    if profile is not None and link is not None and link.bandwidth_bytes_per_second is not None:
        simulation = _core.simulate(plan, profile, link)
        text += f", predicted to take {format_seconds(simulation.iteration_seconds)} each"
    _say(group, text)


def policies_decide(group: dist.ProcessGroup) -> None:
    _say(group, "policies decide from now on what is averaged in an iteration")


def finished(iteration: int, group: dist.ProcessGroup) -> None:
    _say(group, f"all ranks are equal after {iteration} iterations")


def _say(group: dist.ProcessGroup, text: str) -> None:
    if dist.get_rank(group) == 0:
        logger.info("rank 0 of %d: %s", dist.get_world_size(group), text)
