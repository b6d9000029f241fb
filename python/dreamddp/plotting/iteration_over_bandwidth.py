"""Iteration time over the bandwidth, one plot per period."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dreamddp._core import Profile, compute_seconds, layer_transfer_seconds
from dreamddp.comparison import Case, cases_over, has_period, links_of
from dreamddp.plotting.facets import facet_grid, facet_positions
from dreamddp.plotting.iteration_lines import IterationLines
from dreamddp.plotting.palette import apply_style


def plot_iteration_over_bandwidth(profile: Profile, cases: Sequence[Case]) -> go.Figure:
    """Cases over links that all have a bandwidth. Planners of gradients are in every plot."""
    links = sorted(links_of(cases), key=lambda link: link.bandwidth_bytes_per_second or 0)
    bandwidths = [link.bandwidth_bytes_per_second or 0 for link in links]
    periods = sorted({case.plan.period for case in cases if has_period(case.plan)}) or [1]
    figure = facet_grid([f"period {period}" for period in periods])
    apply_style(figure)
    iteration_lines = IterationLines(figure, cases)
    compute = compute_seconds(profile)
    for period, position in zip(periods, facet_positions(len(periods)), strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for link, bandwidth in zip(links, bandwidths, strict=True):
            for case in cases_over(link, cases):
                if case.plan.period == period or not has_period(case.plan):
                    lines.setdefault(case.plan.planner, []).append((bandwidth, case.iteration_seconds))
        limit = [
            (bandwidth, max(compute, sum(layer_transfer_seconds(profile, link)) / period))
            for link, bandwidth in zip(links, bandwidths, strict=True)
        ]
        iteration_lines.add(lines, limit, position)
        figure.update_xaxes(
            title="bandwidth (MB/s)",
            type="log",
            tickvals=bandwidths,
            ticktext=[f"{bandwidth / 1e6:g}" for bandwidth in bandwidths],
            **position,
        )
    return figure
