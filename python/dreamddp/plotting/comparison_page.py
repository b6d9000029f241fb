"""The page that `dreamddp compare --html` writes."""

import os
from collections.abc import Sequence
from pathlib import Path

from dreamddp._core import Profile, format_seconds
from dreamddp.comparison import Case, advice, best_case, cases_over, gap_text, has_period, link_name, links_of
from dreamddp.plotting.iteration_over_bandwidth import plot_iteration_over_bandwidth
from dreamddp.plotting.iteration_over_period import plot_iteration_over_period
from dreamddp.plotting.page import Section, Table, write_page
from dreamddp.plotting.planner_timelines import plot_planner_timelines
from dreamddp.plotting.speedup_map import plot_speedup_map

_LIMIT = (
    "The dashed line is the limit: the greater of the compute time and the link time, per iteration, of "
    "sending the model once in a period. No plan with this traffic can beat it."
)
_TIMELINES = (
    "Above, what a worker computes; below, what is on the link; the iterations of one period, in the steady "
    "state. Slow planners go on to the right. Drag to zoom; double-click to reset, again to see everything."
)


def write_comparison_page(
    path: str | os.PathLike[str], name: str, profile: Profile, cases: Sequence[Case], reference: str
) -> None:
    """OSError where the file cannot be written."""
    links = links_of(cases)
    best = [best_case(cases_over(link, cases), reference) for link in links]
    sections = [
        Section(heading="Advice", paragraphs=[advice(case, reference) for case in best]),
        Section(
            heading="Iteration time over the period",
            paragraphs=[_LIMIT],
            content=plot_iteration_over_period(profile, cases),
        ),
    ]
    if len(links) > 1:
        sections.append(
            Section(
                heading="Iteration time over the bandwidth",
                content=plot_iteration_over_bandwidth(profile, cases),
            )
        )
    sections.append(
        Section(
            heading=f"Speed-up over {reference}",
            paragraphs=["Blue is faster, red is slower."],
            content=plot_speedup_map(cases, reference),
        )
    )
    sections.append(_timelines(profile, cases, _most_telling(best)))
    sections.append(_numbers(cases, reference))
    write_page(path, f"Planners for {Path(name).name}", sections)


def _most_telling(best: Sequence[Case]) -> Case:
    """Over which link to show timelines: the slowest one that can be hidden, where planners differ most."""
    return min(best, key=lambda case: (_exposed_share(case) > 0.05, -case.speedup))


def _exposed_share(case: Case) -> float:
    seconds = case.iteration_seconds
    return case.simulation.exposed_seconds / seconds if seconds > 0 else 0.0


def _timelines(profile: Profile, cases: Sequence[Case], best: Case) -> Section:
    here = cases_over(best.link, cases)
    periods = [case.plan.period for case in here if has_period(case.plan)] or [1]
    period = best.plan.period if has_period(best.plan) else periods[0]
    shown = [case for case in here if case.plan.period == period or not has_period(case.plan)]
    return Section(
        heading=f"Timelines over {link_name(best.link.bandwidth_bytes_per_second)}, period {period}",
        paragraphs=[_TIMELINES],
        content=plot_planner_timelines(profile, shown),
    )


def _numbers(cases: Sequence[Case], reference: str) -> Section:
    return Section(
        heading="Numbers",
        content=Table(
            columns=(
                "planner",
                "link",
                "period",
                "iteration",
                f"speed-up over {reference}",
                "exposed",
                "limit",
                "above bound",
                "ops per iteration",
            ),
            rows=[
                (
                    case.plan.planner,
                    link_name(case.link.bandwidth_bytes_per_second),
                    str(case.plan.period),
                    format_seconds(case.iteration_seconds),
                    f"{case.speedup:.2f}",
                    format_seconds(case.simulation.exposed_seconds),
                    format_seconds(case.simulation.limit_seconds),
                    gap_text(case.simulation.gap),
                    f"{case.simulation.ops_per_iteration:.3g}",
                )
                for case in cases
            ],
        ),
    )
