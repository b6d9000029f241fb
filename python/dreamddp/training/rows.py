"""From the times of single steps to the rows of the final table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WARMUP_STEPS = 5
SMOOTHED_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """What one rank measured, one entry per step."""

    seconds: list[float]
    """From the end of the step before it (the first: from the common start) to its end."""
    exposed_seconds: list[float]
    """Waiting for the link in it."""
    losses: list[float]
    """The training loss of this rank's batch."""


@dataclass(frozen=True, kw_only=True)
class IterationTimes:
    """Times per iteration of the slowest rank."""

    median_seconds: float
    """The median over whole periods of their mean iteration."""
    mean_seconds: float
    """The mean over the same periods."""
    exposed_seconds: float
    """The median over the same periods of the mean wait for the link."""

    @property
    def compute_seconds(self) -> float:
        """What is left of an iteration without the waits."""
        return self.median_seconds - self.exposed_seconds


def warm_steps(num_steps: int, period: int) -> range:
    """The steps that count: whole periods after the warm-up.

    A run too short for that counts all its whole periods, and one shorter than a period all its steps.
    """
    warmup = -(-WARMUP_STEPS // period) * period
    whole = num_steps // period * period
    if whole - warmup >= period:
        return range(warmup, whole)
    return range(whole) if whole else range(num_steps)


def iteration_times(ranks: Sequence[RankSteps], period: int) -> IterationTimes:
    """Times per iteration of the rank whose periods take longest in the median.

    Iterations of one period differ by design (Local SGD waits in one of H), so periods are compared, not
    iterations.
    """

    def of_rank(rank: RankSteps) -> IterationTimes:
        steps = warm_steps(len(rank.seconds), period)
        size = min(period, len(steps))
        periods = [slice(first, first + size) for first in range(steps.start, steps.stop, size)]
        seconds = [statistics.fmean(rank.seconds[part]) for part in periods]
        exposed = [statistics.fmean(rank.exposed_seconds[part]) for part in periods]
        return IterationTimes(
            median_seconds=statistics.median(seconds),
            mean_seconds=statistics.fmean(seconds),
            exposed_seconds=statistics.median(exposed),
        )

    return max(map(of_rank, ranks), key=lambda times: times.median_seconds)


def step_records(planner: str, ranks: Sequence[RankSteps]) -> list[dict[str, Any]]:
    """One record per step: the slowest rank's times, the mean loss, the time since the start."""
    elapsed = [0.0] * len(ranks)
    records = []
    for step in range(len(ranks[0].seconds)):
        elapsed = [before + rank.seconds[step] for before, rank in zip(elapsed, ranks, strict=True)]
        slowest = max(ranks, key=lambda rank: rank.seconds[step])
        records.append(
            {
                "kind": "step",
                "planner": planner,
                "step": step,
                "loss": statistics.fmean(rank.losses[step] for rank in ranks),
                "seconds": slowest.seconds[step],
                "exposed_seconds": slowest.exposed_seconds[step],
                "elapsed_seconds": max(elapsed),
            }
        )
    return records


@dataclass(frozen=True, kw_only=True)
class PlannerResult:
    """What training with one planner gave."""

    planner: str
    period: int
    predicted_seconds: float
    """Of an iteration, by the simulator: before training; with policies, for the decisions that they made."""
    bytes_per_iteration: float | None
    """Averaged per worker; None where a size is unknown."""
    final_loss: float
    """Over the held-out text, after finish()."""
    rank_spread: float
    """The largest difference between ranks of any parameter, after finish()."""
    finish_seconds: float
    """How long finish() took."""
    ranks: list[RankSteps]


def make_rows(results: Sequence[PlannerResult]) -> list[dict[str, Any]]:
    """The rows of the final table, in the order of the results.

    The losses at equal steps and at equal time are training losses, each the mean over ranks and over the
    last ten steps; equal time is the moment when the fastest planner had done all its steps.
    """
    records = [step_records(result.planner, result.ranks) for result in results]
    equal_time = min(steps[-1]["elapsed_seconds"] for steps in records)
    times = [iteration_times(result.ranks, result.period) for result in results]
    ddp = next((t.median_seconds for r, t in zip(results, times, strict=True) if r.planner == "ddp"), None)
    return [
        {
            "planner": result.planner,
            "period": result.period,
            "iteration_seconds": measured.median_seconds,
            "iteration_mean_seconds": measured.mean_seconds,
            "predicted_seconds": result.predicted_seconds,
            "compute_seconds": measured.compute_seconds,
            "exposed_seconds": measured.exposed_seconds,
            "bytes_per_iteration": result.bytes_per_iteration,
            "speedup": ddp / measured.median_seconds if ddp is not None else None,
            "final_loss": result.final_loss,
            "loss_at_equal_steps": smoothed_loss(steps, steps[-1]["elapsed_seconds"]),
            "loss_at_equal_time": smoothed_loss(steps, equal_time),
            "equal_time_seconds": equal_time,
            "elapsed_seconds": steps[-1]["elapsed_seconds"],
            "finish_seconds": result.finish_seconds,
            "rank_spread": result.rank_spread,
        }
        for result, measured, steps in zip(results, times, records, strict=True)
    ]


def smoothed_loss(steps: Sequence[dict[str, Any]], elapsed_seconds: float) -> float | None:
    """The mean loss of the last ten steps that had ended by then; None where none had."""
    ended = [step["loss"] for step in steps if step["elapsed_seconds"] <= elapsed_seconds]
    return statistics.fmean(ended[-SMOOTHED_STEPS:]) if ended else None
