"""What synchronisation costs, in TensorBoard or anything else that takes scalars."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Protocol

from dreamddp.engine import DreamDDP


class ScalarWriter(Protocol):
    """What is needed of a `torch.utils.tensorboard.SummaryWriter`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


def write_stats(writer: ScalarWriter, sync: DreamDDP, *, reset: bool = True) -> None:
    """Writes the counters of this rank under `dreamddp/`, at the current iteration. Local.

    Args:
        reset: begin to count anew, so that the next call gives what came after this one.
    """
    iteration = sync.iteration
    for name, value in asdict(sync.stats(reset=reset)).items():
        if value is not None:
            writer.add_scalar(f"dreamddp/{name}", value, iteration)
