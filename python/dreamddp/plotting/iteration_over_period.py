"""Iteration time over the period, one plot per link."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dreamddp._core import Profile, compute_seconds, layer_transfer_seconds
from dreamddp.comparison import Case, cases_over, has_period, link_name, links_of
from dreamddp.plotting.facets import facet_grid, facet_positions
from dreamddp.plotting.iteration_lines import IterationLines
from dreamddp.plotting.palette import apply_style


def plot_iteration_over_period(profile: Profile, cases: Sequence[Case]) -> go.Figure:
    """Planners of gradients have no period: theirs are level lines."""
    links = links_of(cases)
    figure = facet_grid([link_name(link.bandwidth_bytes_per_second) for link in links])
    apply_style(figure)
    iteration_lines = IterationLines(figure, cases)
    for link, position in zip(links, facet_positions(len(links)), strict=True):
        here = cases_over(link, cases)
        periods = sorted({case.plan.period for case in here if has_period(case.plan)}) or [1]
        lines: dict[str, list[tuple[float, float]]] = {}
        for case in here:
            own = [case.plan.period] if has_period(case.plan) else periods
            lines.setdefault(case.plan.planner, []).extend((h, case.iteration_seconds) for h in own)
        model_seconds = sum(layer_transfer_seconds(profile, link))
        limit = [(h, max(compute_seconds(profile), model_seconds / h)) for h in periods]
        iteration_lines.add(lines, limit, position)
        figure.update_xaxes(title="period (iterations)", tickvals=periods, **position)
    return figure
