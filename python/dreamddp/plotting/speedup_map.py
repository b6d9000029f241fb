"""How much faster than the reference every planner is, for every link and period, as a heat map."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from dreamddp.comparison import Case, cases_over, has_period, link_name, links_of
from dreamddp.plotting.palette import apply_style

_ROW_PIXELS = 34
_FRAME_PIXELS = 170


def plot_speedup_map(cases: Sequence[Case], reference: str) -> go.Figure:
    """Planners of gradients have no period: theirs is the same in all columns of a link."""
    planners = list(dict.fromkeys(case.plan.planner for case in cases))
    links: list[str] = []
    periods: list[str] = []
    speedups: list[list[float | None]] = [[] for _ in planners]
    for link in links_of(cases):
        here = cases_over(link, cases)
        for period in sorted({case.plan.period for case in here if has_period(case.plan)}) or [1]:
            links.append(link_name(link.bandwidth_bytes_per_second))
            periods.append(f"H = {period}")
            found = {
                case.plan.planner: case.speedup
                for case in here
                if case.plan.period == period or not has_period(case.plan)
            }
            for row, planner in zip(speedups, planners, strict=True):
                row.append(found.get(planner))
    figure = go.Figure(
        go.Heatmap(
            x=[links, periods],
            y=planners,
            # Twice as fast and half as fast lie equally far from white.
            z=[[None if value is None else math.log2(value) for value in row] for row in speedups],
            zmid=0,
            colorscale="RdBu",
            text=speedups,
            texttemplate="%{text:.2f}x",
            hovertemplate="%{y}, %{x}: %{text:.2f} times as fast as " + reference + "<extra></extra>",
            showscale=False,
        )
    )
    apply_style(figure)
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(height=_FRAME_PIXELS + _ROW_PIXELS * len(planners))
    return figure
