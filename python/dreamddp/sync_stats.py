"""What synchronisation did and cost, for people and for writers of scalars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamddp._runtime import TrainingStatistics


@dataclass(frozen=True)
class SyncStats:
    """What synchronisation did and cost on this rank; means over the iterations since the last reset."""

    iterations: int
    iteration_seconds: float
    compute_seconds: float
    exposed_seconds: float
    """Compute waiting for the link."""
    link_seconds: float
    """In which at least one average was being carried out, waiting for other ranks included."""
    ops_per_iteration: float
    bytes_per_iteration: float
    """Bytes of parameters averaged, per worker."""
    predicted_seconds: float | None
    """Iteration time that the simulator predicts for the plan, to be compared with `iteration_seconds`; None
    while there is no measured profile."""


def means_of(total: TrainingStatistics, predicted_seconds: float | None) -> SyncStats:
    count = max(total.iterations, 1)
    return SyncStats(
        iterations=total.iterations,
        iteration_seconds=total.seconds / count,
        compute_seconds=(total.seconds - total.exposed_seconds) / count,
        exposed_seconds=total.exposed_seconds / count,
        link_seconds=total.link_seconds / count,
        ops_per_iteration=total.ops / count,
        bytes_per_iteration=total.num_bytes / count,
        predicted_seconds=predicted_seconds,
    )
