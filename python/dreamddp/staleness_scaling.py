"""Smaller steps for layers that have gone long without an average. Design section 10."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dreamddp.layers import ModelLayer


class StalenessScaling:
    """For the time of a step, the learning rate of each layer is lr * decay^staleness.

    An optimizer has one learning rate for each parameter group. So a group whose layers differ is split, from
    the begin of the step to its end; before and after, and to schedulers and checkpoints, all groups are as
    they were. After a step that raises they are so again from the next forward, step or `state_dict()` of the
    optimizer on. Optimizers must keep their state by parameter.

    Args:
        decay: in (0, 1].
    """

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], layers: Sequence[ModelLayer], decay: float
    ) -> None:
        self._decay = decay
        self._layer_of = {
            id(parameter): index for index, layer in enumerate(layers) for parameter in layer.parameters
        }
        self._whole: dict[int, tuple[torch.optim.Optimizer, list[dict[str, Any]]]] = {}
        # A step that raises has no end.
        self._handles = [one.register_state_dict_pre_hook(self.end) for one in optimizers]

    def begin(self, optimizer: torch.optim.Optimizer, staleness: Sequence[int]) -> None:
        """The step begins.

        Args:
            staleness: of each layer; empty where nothing is to be scaled.
        """
        self.end(optimizer)
        if not any(staleness):
            return
        groups = optimizer.param_groups
        self._whole[id(optimizer)] = (optimizer, list(groups))
        groups[:] = [
            part for group in groups for part in self._split(group, lambda p: self._steps(p, staleness))
        ]

    def end(self, optimizer: torch.optim.Optimizer) -> None:
        """The step has ended; without a begin, nothing happens."""
        whole = self._whole.pop(id(optimizer), None)
        if whole is not None:
            optimizer.param_groups[:] = whole[1]

    def end_all(self) -> None:
        """All steps have ended, those that raised among them."""
        for optimizer, _ in list(self._whole.values()):
            self.end(optimizer)

    def remove(self) -> None:
        self.end_all()
        for handle in self._handles:
            handle.remove()

    def _steps(self, parameter: torch.Tensor, staleness: Sequence[int]) -> int:
        layer = self._layer_of.get(id(parameter))
        return 0 if layer is None else staleness[layer]

    def _split(self, group: dict[str, Any], steps: Callable[[torch.Tensor], int]) -> list[dict[str, Any]]:
        parts: dict[int, list[torch.Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            parts[steps(parameter)].append(parameter)
        return [
            {**group, "params": parameters, "lr": group["lr"] * self._decay**count}
            for count, parameters in parts.items()
        ]
