"""What every planner will gain, known before training: plans and their simulated times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dreamddp._core import (
    Link,
    Plan,
    Profile,
    Simulation,
    Span,
    choose_period,
    make_plan,
    simulate,
    simulate_timeline,
    training_slack,
)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A plan and what the simulator says of it."""

    planner: str
    plan: Plan
    simulation: Simulation
    timeline: list[Span]
    """The spans of one simulated period."""

    def to_record(self) -> dict[str, Any]:
        """The `plan` record of the run."""
        simulation = self.simulation
        return {
            "kind": "plan",
            "planner": self.planner,
            "period": self.plan.period,
            "num_ops": len(self.plan.ops),
            "ops_per_iteration": simulation.ops_per_iteration,
            "bytes_per_iteration": simulation.bytes_per_iteration,
            "predicted_seconds": simulation.iteration_seconds,
            "compute_seconds": simulation.compute_seconds,
            "link_seconds": simulation.link_seconds,
            "exposed_seconds": simulation.exposed_seconds,
            "limit_seconds": simulation.limit_seconds,
            "bound_seconds": simulation.bound_seconds,
            "gap": simulation.gap,
            "staging_bytes": simulation.staging_bytes,
        }


def predict(planners: Sequence[str], profile: Profile, link: Link, period: int | None) -> list[Prediction]:
    """A plan of every planner and its time; the period is chosen from profile and link where it is None.

    Deterministic: ranks with the same profile and link make the same plans.
    """
    chosen = period if period is not None else choose_period(profile, link, slack=training_slack)
    predictions = []
    for planner in planners:
        plan = make_plan(planner, profile, link, period=chosen, slack=training_slack)
        predictions.append(
            Prediction(
                planner=planner,
                plan=plan,
                simulation=simulate(plan, profile, link),
                timeline=simulate_timeline(plan, profile, link),
            )
        )
    return predictions
