"""The theorem on a quadratic, small; and that its check can fail."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.convergence import (
    Problem,
    cuts_layers,
    failures,
    make_plans,
    make_problem,
    measure,
    noise_bound,
    run,
    slope,
)
from dreamddp import Plan


def test_partial_synchronisation_converges_as_full_does() -> None:
    checkpoints, errors = measure(workers=4, period=5, iterations=6000, repetitions=6, seed=3)
    assert failures(checkpoints, errors) == []
    for values in errors.values():
        assert (values <= noise_bound(4, checkpoints))[-10:].all()


def test_the_plans_are_those_that_the_theorem_is_about() -> None:
    plans = make_plans(5)
    assert cuts_layers(plans["balanced"])
    assert not cuts_layers(plans["local-sgd"])
    assert len({op.launch.iteration for op in plans["local-sgd"].ops}) == 1
    for name in ("balanced", "equal-count"):
        assert {op.launch.iteration for op in plans[name].ops} == set(range(5))


def test_workers_that_are_never_averaged_are_found_out() -> None:
    problem = make_problem(4, 3)
    plan = Plan(planner="none", period=5, layers=make_plans(5)["balanced"].layers, ops=[])
    checkpoints = [600, 1000, 2000, 4000, 6000]
    alone = run(problem, plan, checkpoints, repetitions=4, seed=4)
    full = run(problem, make_plans(5)["local-sgd"], checkpoints, repetitions=4, seed=4)
    found = failures(checkpoints, {"local-sgd": full, "balanced": alone})
    assert [line.split(":")[0] for line in found] == ["balanced", "balanced"]


def test_the_error_and_the_slope_by_hand() -> None:
    problem = Problem(
        curvatures=np.array([[1.0, 2.0], [3.0, 2.0]]), optima=np.array([[4.0, 0.0], [0.0, 1.0]])
    )
    assert problem.best.tolist() == [1.0, 0.5]
    assert problem.error(np.array([2.0, 1.5])) == pytest.approx(0.5 * (2 + 2))
    assert slope([1, 10, 100], np.array([5.0, 0.8, 0.08])) == pytest.approx(-1)
    assert slope([1, 10, 100], np.array([5.0, 0.8, 0.008])) == pytest.approx(-2)
