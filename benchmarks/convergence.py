"""The rate of partial synchronisation on a strongly convex quadratic: the error falls as 1/R.

    python -m benchmarks.convergence [--picture docs/images/convergence.png]

K workers minimise f = mean_k f_k, f_k(w) = 1/2 sum_i a_ki (w_i - b_ki)^2 + const, with gradients that have
independent noise, and with step sizes 4 / (mu (a + r)), a = max(16 kappa, H), as in Stich, "Local SGD
converges fast and communicates little" (ICLR 2019), theorem 2.2, whose average of the iterates, weighted with
(a + r)^2, is what is measured. Workers have different curvatures and optima: so it matters when they are
averaged. Plans are those of the library, among them one whose segments cut layers.

Exit code 1 where the slope of a line of the last decade, on log axes, is not -1 within 0.15, or where partial
synchronisation ends more than 10% above full synchronisation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from rich.progress import track

from benchmarks.result_file import write_result
from dreamddp import EventKind, Layer, Link, Op, Plan, Profile, Segment, make_plan
from dreamddp.plotting.palette import apply_style, planner_colour

Array = NDArray[np.float64]

MU, BETA = 1.0, 4.0
NOISE = 2.0
"""Standard deviation of the noise in each coordinate of a gradient."""
SIZES = (7, 1, 12, 4, 16, 3, 9, 12)
"""Coordinates of each layer."""
TITLES = {
    "local-sgd": "full (Local SGD)",
    "balanced": "partial (balanced)",
    "equal-count": "partial (equal-count)",
}
TOLERANCE = 0.15
RATIO = 1.1


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The functions of all workers; the last axis is that of coordinates."""

    curvatures: Array
    """a: [workers, coordinates], in [MU, BETA]."""
    optima: Array
    """b: [workers, coordinates]."""

    @property
    def best(self) -> Array:
        """Where the mean of all functions is least: [coordinates]."""
        weighted: Array = (self.curvatures * self.optima).sum(axis=0)
        return np.asarray(weighted / self.curvatures.sum(axis=0))

    def error(self, weights: Array) -> Array:
        """f(w) - f*, for weights of shape [.., coordinates]."""
        return np.asarray(0.5 * (self.curvatures.mean(axis=0) * (weights - self.best) ** 2).sum(axis=-1))


def make_problem(workers: int, seed: int) -> Problem:
    random = np.random.default_rng(seed)
    return Problem(
        curvatures=random.uniform(MU, BETA, (workers, sum(SIZES))),
        optima=random.normal(0.0, 1.0, (workers, sum(SIZES))),
    )


def make_plans(period: int) -> dict[str, Plan]:
    """Full synchronisation, and partial of two kinds, over layers of different sizes."""
    layers = [
        Layer(f"h.{i}", forward_seconds=1.0, backward_seconds=2.0, num_bytes=4 * size)
        for i, size in enumerate(SIZES)
    ]
    link = Link(bandwidth_bytes_per_second=sum(SIZES) * 4 / (period * 20.0))
    profile = Profile(layers)
    return {name: make_plan(name, profile, link, period=period) for name in TITLES}


def slices_of(op: Op) -> list[slice]:
    """The coordinates that an op averages."""

    def of(segment: Segment) -> slice:
        first, size = sum(SIZES[: segment.layer]), SIZES[segment.layer]
        end = size if segment.end >= 1 else int(segment.end * size)
        return slice(first + int(segment.begin * size), first + end)

    return [of(segment) for segment in op.segments]


def run(problem: Problem, plan: Plan, checkpoints: Sequence[int], repetitions: int, seed: int) -> Array:
    """The mean error over repetitions at each checkpoint R (ascending), by design section 3: what a backward
    window averages has not been stepped, what a forward window averages has."""
    workers, coordinates = problem.curvatures.shape
    random = np.random.default_rng(seed)
    weights = np.full((repetitions, workers, coordinates), 3.0)
    shift = max(16 * BETA / MU, plan.period)
    before_step: list[list[slice]] = [[] for _ in range(plan.period)]
    after_step: list[list[slice]] = [[] for _ in range(plan.period)]
    for op in plan.ops:
        ops = after_step if op.launch.kind is EventKind.after_step else before_step
        ops[op.launch.iteration] += slices_of(op)
    total = np.zeros((repetitions, coordinates))
    sum_of_weights = 0.0
    errors = []
    wanted = set(checkpoints)
    for r in range(max(checkpoints)):
        gradients = problem.curvatures * (weights - problem.optima)
        gradients += NOISE * random.standard_normal(weights.shape)
        average(weights, before_step[r % plan.period])
        weights -= 4.0 / (MU * (shift + r)) * gradients
        average(weights, after_step[r % plan.period])
        share = (shift + r) ** 2
        sum_of_weights += share
        total += share * weights.mean(axis=1)
        if r + 1 in wanted:
            errors.append(float(problem.error(total / sum_of_weights).mean()))
    return np.array(errors)


def average(weights: Array, parts: Sequence[slice]) -> None:
    for part in parts:
        weights[:, :, part] = weights[:, :, part].mean(axis=1, keepdims=True)


def slope(checkpoints: Sequence[int], errors: Array) -> float:
    """Of the line through the points of the last decade, on log axes."""
    last = [i for i, r in enumerate(checkpoints) if r >= checkpoints[-1] / 10]
    x = np.log([checkpoints[i] for i in last])
    return float(np.polyfit(x, np.log(errors[last]), 1)[0])


def noise_bound(workers: int, iterations: Sequence[int]) -> Array:
    """The theorem's leading term, 12 sigma^2 / (mu K R), with the variance sigma^2 of a whole gradient."""
    variance = NOISE**2 * sum(SIZES)
    return np.array([12 * variance / (MU * workers * r) for r in iterations])


def cuts_layers(plan: Plan) -> bool:
    return any(segment.begin > 0 or segment.end < 1 for op in plan.ops for segment in op.segments)


def failures(checkpoints: Sequence[int], errors: dict[str, Array]) -> list[str]:
    """What does not hold of what the theorem says."""
    found = [
        f"{name}: slope {slope(checkpoints, values):.3f}; expected -1 within {TOLERANCE}"
        for name, values in errors.items()
        if abs(slope(checkpoints, values) + 1) > TOLERANCE
    ]
    full = errors["local-sgd"][-1]
    found += [
        f"{name}: error {values[-1]:.3g} at the end; expected at most {RATIO} times {full:.3g}"
        for name, values in errors.items()
        if values[-1] > RATIO * full
    ]
    return found


def draw(checkpoints: Sequence[int], errors: dict[str, Array], bound: Array) -> go.Figure:
    figure = go.Figure()
    for (name, values), dash in zip(errors.items(), ("solid", "dash", "dot"), strict=True):
        figure.add_scatter(
            x=list(checkpoints),
            y=values,
            name=f"{TITLES[name]}, slope {slope(checkpoints, values):.2f}",
            mode="lines",
            line={"color": planner_colour(name), "width": 2.5, "dash": dash},
        )
    figure.add_scatter(
        x=list(checkpoints),
        y=bound,
        name="12 σ² / (μ K R)",
        mode="lines",
        line={"color": "#000000", "width": 1.5, "dash": "longdash"},
    )
    apply_style(figure)
    figure.update_layout(legend={"x": 0.02, "y": 0.02, "yanchor": "bottom"})
    figure.update_xaxes(type="log", title="iterations R", dtick=1)
    figure.update_yaxes(type="log", title="f(ŵ) − f*, mean over repetitions", exponentformat="power", dtick=1)
    return figure


def measure(
    *, workers: int, period: int, iterations: int, repetitions: int, seed: int
) -> tuple[list[int], dict[str, Array]]:
    """Checkpoints, and the errors of every plan at them."""
    plans = make_plans(period)
    assert cuts_layers(plans["balanced"])
    problem = make_problem(workers, seed)
    checkpoints = sorted({int(r) for r in np.geomspace(iterations / 200, iterations, 40)})
    errors = {
        name: run(problem, plan, checkpoints, repetitions, seed + 1)
        for name, plan in track(plans.items(), description="plans", transient=True)
    }
    return checkpoints, errors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=8, help="K")
    parser.add_argument("--period", type=int, default=10, help="H")
    parser.add_argument("--iterations", type=int, default=40_000, help="R")
    parser.add_argument("--repetitions", type=int, default=16)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    checkpoints, errors = measure(
        workers=options.workers,
        period=options.period,
        iterations=options.iterations,
        repetitions=options.repetitions,
        seed=0,
    )
    for name, values in errors.items():
        print(
            f"{name}: slope {slope(checkpoints, values):.3f}, error {values[-1]:.3g} at R = {checkpoints[-1]}"
        )
    found = failures(checkpoints, errors)
    result = {
        "workers": options.workers,
        "period": options.period,
        "repetitions": options.repetitions,
        "iterations": checkpoints,
        "errors": {name: list(values) for name, values in errors.items()},
        "slopes": {name: slope(checkpoints, values) for name, values in errors.items()},
        "failures": found,
    }
    print(write_result("convergence", result))
    if options.picture is not None:
        bound = noise_bound(options.workers, checkpoints)
        draw(checkpoints, errors, bound).write_image(options.picture, width=760, height=460, scale=1.5)
    for line in found:
        print(line, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
