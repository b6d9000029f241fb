"""Lines of iteration times, one per planner, and the limit below them."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from dreamddp.comparison import Case
from dreamddp.plotting.palette import LIMIT_COLOUR, planner_colour

Points = Sequence[tuple[float, float]]
"""x, and seconds"""


def add_iteration_lines(
    figure: go.Figure, lines: Mapping[str, Points], limit: Points, position: Mapping[str, int]
) -> None:
    """Adds planner -> points to one plot of a grid. Only the first plot names them in the legend."""
    is_first = position["row"] == position["col"] == 1
    for planner, points in lines.items():
        figure.add_scatter(
            x=[x for x, _ in points],
            y=[1e3 * seconds for _, seconds in points],
            name=planner,
            legendgroup=planner,
            showlegend=is_first,
            mode="lines+markers",
            line={"color": planner_colour(planner)},
            hovertemplate="%{y:.4g} ms",
            **position,
        )
    figure.add_scatter(
        x=[x for x, _ in limit],
        y=[1e3 * seconds for _, seconds in limit],
        name="limit",
        legendgroup="limit",
        showlegend=is_first,
        mode="lines",
        line={"color": LIMIT_COLOUR, "dash": "dash", "width": 1.5},
        hovertemplate="%{y:.4g} ms",
        **position,
    )


def set_time_axes(figure: go.Figure, cases: Sequence[Case]) -> None:
    """Logarithmic where linear axes would flatten the fast planners."""
    times = [case.iteration_seconds for case in cases]
    is_wide = max(times) > 6 * min(times)
    figure.update_yaxes(
        **({"type": "log", "dtick": "D2"} if is_wide else {"rangemode": "tozero"}),
        showline=True,
        linecolor="#bbb",
    )
    figure.update_yaxes(title="iteration time (ms)", col=1)
    figure.update_layout(hovermode="x unified", legend={"orientation": "v"})
