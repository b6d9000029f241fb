"""What every planner will gain, known before training: plans and their simulated times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
