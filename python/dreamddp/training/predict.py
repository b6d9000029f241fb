"""What every planner will gain, known before training: plans and their simulated times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dreamddp._core import (
    Link,
    Plan,
    Profile,
    Span,
    choose_period,
    make_plan,
    simulate,
    simulate_timeline,
    training_slack,
)
from dreamddp.due_layers import (
    PLANNER,
    DueLayerTimes,
    due_without_gradients,
    longest_gap,
    plan_of_policies,
)
from dreamddp.simulation_row import Row, simulation_row


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A plan, or policies, and what the simulator says of them."""

    planner: str
    plan: Plan
    """Without ops for policies, which decide in each iteration anew."""
    period: int
    """Iterations in which every layer is averaged at least once; with policies, as far as that is known."""
    row: Row
    """The keys of `simulation_row()`."""
    timeline: list[Span]
    """The spans of one simulated period; none for policies."""


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
                period=plan.period,
                row=simulation_row(plan, simulate(plan, profile, link)),
                timeline=simulate_timeline(plan, profile, link),
            )
        )
    return predictions


def predict_policies(policies: str, profile: Profile, link: Link, steps: int) -> Prediction:
    """What policies (JSON) will take, as far as that can be said without gradients: layers that they will
    find due by direction are not foreseen.

    Raises:
        ValueError: for policies that do not fit the layers.
    """
    due = due_without_gradients(profile, policies, steps)
    period = longest_gap(due, [layer.name for layer in profile.layers if layer.num_bytes != 0])
    times = DueLayerTimes(profile, link)
    times.add(due)
    row = times.mean()
    assert row is not None
    return Prediction(
        planner=PLANNER,
        plan=plan_of_policies(profile),
        period=period,
        row={**row, "period": period},
        timeline=[],
    )
