"""The arithmetic from steps to rows, on numbers that can be checked by hand."""

from __future__ import annotations

import pytest

from dreamddp.training.rows import (
    PlannerResult,
    RankSteps,
    iteration_times,
    make_rows,
    smoothed_loss,
    step_records,
    warm_steps,
)


def steps(seconds: list[float], exposed: list[float] | None = None, loss: float = 1.0) -> RankSteps:
    waits = exposed if exposed is not None else [0.0] * len(seconds)
    return RankSteps(seconds=seconds, exposed_seconds=waits, losses=[loss] * len(seconds))


@pytest.mark.parametrize(
    ("num_steps", "period", "expected"),
    [
        (100, 1, range(5, 100)),
        (100, 4, range(8, 100)),
        (102, 4, range(8, 100)),
        (100, 30, range(30, 90)),
        (6, 4, range(4)),
        (3, 4, range(3)),
        (1, 1, range(1)),
        (6, 1, range(5, 6)),
    ],
)
def test_whole_periods_after_the_warm_up_count(num_steps: int, period: int, expected: range) -> None:
    assert warm_steps(num_steps, period) == expected


def test_periods_are_compared_not_iterations() -> None:
    # Period 2, warm-up 6 steps: the periods that count take 4, 6 and 20, that is 2, 3 and 10 per iteration.
    seconds = [9.0] * 6 + [1.0, 3.0, 2.0, 4.0, 0.0, 20.0]
    exposed = [9.0] * 6 + [0.0, 2.0, 0.0, 1.0, 0.0, 19.0]
    times = iteration_times([steps(seconds, exposed)], 2)
    assert (times.median_seconds, times.mean_seconds, times.exposed_seconds) == (3.0, 5.0, 1.0)
    assert times.compute_seconds == 2.0


def test_slowest_rank_counts() -> None:
    times = iteration_times([steps([1.0] * 10), steps([3.0] * 10, [2.0] * 10)], 1)
    assert (times.median_seconds, times.exposed_seconds) == (3.0, 2.0)


def test_step_records_take_the_slowest_rank_and_the_mean_loss() -> None:
    fast, slow = steps([1.0, 5.0], [0.5, 4.0], loss=1.0), steps([2.0, 1.0], [0.0, 0.25], loss=3.0)
    first, second = step_records("p", [fast, slow])
    assert first == {
        "kind": "step",
        "planner": "p",
        "step": 0,
        "loss": 2.0,
        "seconds": 2.0,
        "exposed_seconds": 0.0,
        "elapsed_seconds": 2.0,
    }
    assert (second["seconds"], second["exposed_seconds"], second["elapsed_seconds"]) == (5.0, 4.0, 6.0)


def test_smoothed_loss_takes_what_had_ended_by_then() -> None:
    records = [{"loss": float(index), "elapsed_seconds": index + 1.0} for index in range(20)]
    assert smoothed_loss(records, 20.0) == 14.5
    assert smoothed_loss(records, 3.0) == 1.0
    assert smoothed_loss(records, 0.5) is None


def result(planner: str, seconds: float, losses: list[float]) -> PlannerResult:
    ranks = [
        RankSteps(seconds=[seconds] * len(losses), exposed_seconds=[0.0] * len(losses), losses=losses)
    ] * 2
    return PlannerResult(
        planner=planner,
        period=1,
        predicted_seconds=seconds,
        bytes_per_iteration=8.0,
        final_loss=losses[-1],
        rank_spread=0.0,
        finish_seconds=0.0,
        ranks=ranks,
    )


def test_rows_compare_at_equal_steps_and_at_equal_time() -> None:
    losses = [float(20 - step) for step in range(20)]
    ddp, balanced = make_rows([result("ddp", 4.0, losses), result("balanced", 1.0, losses)])
    assert (ddp["speedup"], balanced["speedup"]) == (1.0, 4.0)
    assert ddp["loss_at_equal_steps"] == balanced["loss_at_equal_steps"] == 5.5
    # balanced ends at 20 s; ddp has then done 5 steps, with losses 20 .. 16.
    assert ddp["equal_time_seconds"] == 20.0
    assert (ddp["loss_at_equal_time"], balanced["loss_at_equal_time"]) == (18.0, 5.5)


def test_without_ddp_there_is_no_speedup() -> None:
    assert make_rows([result("balanced", 1.0, [1.0])])[0]["speedup"] is None
