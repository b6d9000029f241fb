"""What optimizers keep for each parameter, such as momentum: local to a rank unless it is averaged here."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from dreamddp import agreement
from dreamddp._runtime import Engine


def average_moments(
    optimizers: Sequence[torch.optim.Optimizer], engine: Engine, group: dist.ProcessGroup
) -> None:
    """Averages the floating-point tensors that optimizers keep in a parameter's shape. Collective; no average
    may be under way.

    Raises:
        ValueError: on all ranks, where they keep different ones: one rank has made no step yet, for instance.
    """
    moments: dict[str, torch.Tensor] = {}
    for number, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            kept_for_it = optimizer.state.get(parameter)
            for name, value in kept_for_it.items() if isinstance(kept_for_it, dict) else ():
                if name != "step" and _is_moment(value, parameter):
                    key = f"'{name}' of parameter {index} of optimizer {number}"
                    moments[key] = value
    doing = "comparing what optimizers keep"
    kept = agreement.gather(
        {key: f"{tuple(value.shape)}, {value.dtype}" for key, value in moments.items()}, group, doing
    )
    agreement.require_equal(
        kept, "what their optimizers keep", "Step the same optimizers, with the same options, on every rank."
    )
    engine.average([moments[key] for key in kept[0] if moments[key].numel() > 0])


def _is_moment(value: object, parameter: torch.Tensor) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.shape == parameter.shape
        and (value.is_floating_point() or value.is_complex())
    )
