"""Which case is advised, and in what words."""

import pytest

from dreamddp import Event, EventKind, Layer, Link, Op, Plan, Profile, Quantity, Segment, simulate
from dreamddp.comparison import Case, advice, best_case, gap_text, has_period

PROFILE = Profile(
    [Layer("a", forward_seconds=1e-3, backward_seconds=2e-3, num_bytes=4000, transfer_seconds=4e-3)]
)
AFTER_BACKWARD = Event(0, EventKind.after_backward, 0)
BEFORE_STEP = Event(0, EventKind.before_step)


def case(planner: str, period: int, *, gradients: bool = False) -> Case:
    """3 ms of compute, and 4 ms of exposed communication once in a period."""
    quantity = Quantity.gradients if gradients else Quantity.parameters
    op = Op([Segment(0)], launch=AFTER_BACKWARD, deadline=BEFORE_STEP, quantity=quantity)
    plan = Plan(planner=planner, period=period, layers=["a"], ops=[op])
    link = Link()
    return Case(link=link, plan=plan, simulation=simulate(plan, PROFILE, link), reference_seconds=7e-3)


def test_a_longer_period_must_pay() -> None:
    # 3.04 ms against 3.02 ms: 0.7 % is not worth another 100 iterations of drift.
    assert best_case([case("p", 100), case("p", 200)], "ddp").plan.period == 100
    # 3.8 ms against 3.4 ms
    assert best_case([case("p", 5), case("p", 10)], "ddp").plan.period == 10


def test_the_reference_wins_where_it_is_as_good() -> None:
    cases = [case("ssgd", 1, gradients=True), case("ddp", 1, gradients=True)]
    assert best_case(cases, "ddp").plan.planner == "ddp"
    assert (
        advice(cases[1], "ddp") == "Over the measured link: stay with ddp, which takes 7.00 ms per iteration."
    )


def test_advice_says_what_is_gained() -> None:
    assert advice(case("p", 5), "ddp") == (
        "Over the measured link: take p with period 5: 3.80 ms per iteration, 1.84 times as fast as ddp, "
        "0.0% above the lower bound."
    )
    assert "no faster than ddp" in advice(case("ssgd", 1, gradients=True), "ddp")


def test_only_plans_of_parameters_have_a_period() -> None:
    assert has_period(case("p", 1).plan)
    assert not has_period(case("ssgd", 1, gradients=True).plan)


@pytest.mark.parametrize(("gap", "text"), [(-1e-16, "0.0%"), (0.0, "0.0%"), (0.1234, "12.3%")])
def test_gaps_are_never_negative_zeros(gap: float, text: str) -> None:
    assert gap_text(gap) == text
