"""All planners side by side: plans and simulates every combination, and says which one to take."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dreamddp._core import (
    Link,
    Plan,
    Profile,
    Quantity,
    Simulation,
    default_staging_bytes,
    format_bytes_per_second,
    format_seconds,
    make_plan,
    planner_can_fuse,
    planner_quantity,
    planners,
    simulate,
)

# A longer period is only worth its drift where it is faster than a shorter one by more than this fraction.
ADVICE_MARGIN = 0.02

# Its time grows with their square: minutes for ten thousand and long periods.
MOST_LAYERS_FOR_SEQUENTIAL = 3000


@dataclass(frozen=True, kw_only=True)
class Case:
    """One plan, timed over one link."""

    link: Link
    plan: Plan
    simulation: Simulation
    reference_seconds: float
    """iteration time of the reference planner over the same link"""

    @property
    def iteration_seconds(self) -> float:
        return self.simulation.iteration_seconds

    @property
    def speedup(self) -> float:
        if self.reference_seconds == self.simulation.iteration_seconds:  # both may be 0
            return 1.0
        return self.reference_seconds / self.simulation.iteration_seconds


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is combined. `periods` has one entry per link: "auto" may mean another number for each."""

    planners: Sequence[str]
    links: Sequence[Link]
    periods: Sequence[Sequence[int]]
    staging_bytes: int = default_staging_bytes
    max_delay: int = 0
    fused_update: bool = False
    """for planners of parameters; plans of gradients are the same with it"""

    @property
    def num_plans(self) -> int:
        return sum(1 + len(self.planners) * len(periods) for periods in self.periods)


def default_planners(profile: Profile, *, fused_update: bool = False) -> list[str]:
    """All but exhaustive search, exact partitions of very large models, and ddp where there are no sizes.

    With fused updates, also without planners of parameters that make no such plans.
    """
    left_out = {"brute-force"}
    if not _sizes_are_known(profile):
        left_out.add("ddp")
    if len(profile.layers) > MOST_LAYERS_FOR_SEQUENTIAL:
        left_out.add("sequential")
    if fused_update:
        left_out |= {
            name
            for name, _ in planners()
            if planner_quantity(name) is Quantity.parameters and not planner_can_fuse(name)
        }
    return [name for name, _ in planners() if name not in left_out]


def reference_planner(profile: Profile) -> str:
    """What speed-ups compare with: bucketed data parallelism, or, where sizes are unknown, its ideal form."""
    return "ddp" if _sizes_are_known(profile) else "wfbp"


def _sizes_are_known(profile: Profile) -> bool:
    return all(layer.num_bytes is not None for layer in profile.layers)


def compare(profile: Profile, choices: Choices, advance: Callable[[str], None]) -> list[Case]:
    """Plans and times every combination, in the order of links, planners, periods.

    A planner without a period (it averages gradients in every iteration) has one case per link.
    `advance` is called with a description before each plan is made.
    """
    cases: list[Case] = []
    reference = reference_planner(profile)
    for link, periods in zip(choices.links, choices.periods, strict=True):
        advance(reference)
        _, simulation = _plan_and_time(reference, profile, link, 1, choices)
        reference_seconds = simulation.iteration_seconds
        for planner in choices.planners:
            previous: Plan | None = None
            for period in periods:
                advance(f"{planner}, period {period}")
                plan, simulation = _plan_and_time(planner, profile, link, period, choices)
                if plan == previous:
                    break
                previous = plan
                cases.append(
                    Case(link=link, plan=plan, simulation=simulation, reference_seconds=reference_seconds)
                )
    return cases


def _plan_and_time(
    planner: str, profile: Profile, link: Link, period: int, choices: Choices
) -> tuple[Plan, Simulation]:
    plan = make_plan(
        planner,
        profile,
        link,
        period=period,
        staging_bytes=choices.staging_bytes,
        max_delay=choices.max_delay,
        fused_update=choices.fused_update and planner_quantity(planner) is Quantity.parameters,
    )
    return plan, simulate(
        plan, profile, link, staging_bytes=min(choices.staging_bytes, default_staging_bytes)
    )


def has_period(plan: Plan) -> bool:
    """Plans of gradients average in every iteration, whatever period is asked for."""
    return any(op.quantity is Quantity.parameters for op in plan.ops)


def links_of(cases: Iterable[Case]) -> list[Link]:
    links: list[Link] = []
    for case in cases:
        if case.link not in links:
            links.append(case.link)
    return links


def link_name(bandwidth_bytes_per_second: float | None) -> str:
    """None: the link over which the profile's transfer times were measured."""
    if bandwidth_bytes_per_second is None:
        return "the measured link"
    return format_bytes_per_second(bandwidth_bytes_per_second)


def gap_text(gap: float) -> str:
    """Never "-0.0%", which rounding errors would give to a plan on its bound."""
    return f"{round(gap, 3) + 0.0:.1%}"


def cases_over(link: Link, cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if case.link == link]


def best_case(cases: Sequence[Case], reference: str) -> Case:
    """Of the cases over one link: the shortest period that is about as fast as the fastest.

    Nobody should change what they have for nothing: the reference planner wins where it is as good.
    """
    fastest = min(case.iteration_seconds for case in cases)
    return min(
        (case for case in cases if case.iteration_seconds <= fastest * (1 + ADVICE_MARGIN)),
        key=lambda case: (
            case.plan.period,
            case.plan.planner != reference,
            case.iteration_seconds,
            case.simulation.ops_per_iteration,
        ),
    )


def advice(best: Case, reference: str) -> str:
    """One sentence: what to take over this link, and what it gains."""
    where = f"Over {link_name(best.link.bandwidth_bytes_per_second)}: "
    if best.plan.planner == reference:
        seconds = format_seconds(best.iteration_seconds)
        return f"{where}stay with {reference}, which takes {seconds} per iteration."
    change = (
        f"{best.speedup:.2f} times as fast as {reference}"
        if best.speedup >= 1.005
        else f"no faster than {reference}"
    )
    return (
        f"{where}take {best.plan.planner} with period {best.plan.period}: "
        f"{format_seconds(best.iteration_seconds)} per iteration, {change}, "
        f"{gap_text(best.simulation.gap)} above the lower bound."
    )
