"""Lines of iteration times, one per planner, and the limit below them."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from dreamddp.comparison import Case
from dreamddp.plotting.palette import LIMIT_COLOUR, planner_colour
from dreamddp.plotting.time_axis import TimeUnit, round_ticks, unit_for

Points = Sequence[tuple[float, float]]
"""x, and seconds"""


class IterationLines:
    """Fills a grid of plots that share the axis of iteration times. Not thread-safe."""

    def __init__(self, figure: go.Figure, cases: Sequence[Case]) -> None:
        """Scales the axes for these cases: logarithmic where linear ones would flatten the fast planners."""
        self._figure = figure
        times = [case.iteration_seconds for case in cases] + [case.simulation.limit_seconds for case in cases]
        self._unit = unit_for(max(times))
        figure.update_yaxes(showline=True, linecolor="#bbb", **_scale(min(times), max(times), self._unit))
        figure.update_yaxes(title=f"iteration time ({self._unit.name})", col=1)
        figure.update_layout(hovermode="x unified")

    def add(self, lines: Mapping[str, Points], limit: Points, position: Mapping[str, int]) -> None:
        """Adds planner -> points to one plot. Only the first plot's lines are named in the legend."""
        for planner, points in lines.items():
            self._add_line(
                planner, points, position, mode="lines+markers", line={"color": planner_colour(planner)}
            )
        style = {"color": LIMIT_COLOUR, "dash": "dash", "width": 1.5}
        self._add_line("limit", limit, position, mode="lines", line=style)

    def _add_line(
        self, name: str, points: Points, position: Mapping[str, int], *, mode: str, line: Mapping[str, object]
    ) -> None:
        self._figure.add_scatter(
            x=[x for x, _ in points],
            y=[self._unit.per_second * seconds for _, seconds in points],
            name=name,
            legendgroup=name,
            showlegend=position["row"] == position["col"] == 1,
            mode=mode,
            line=line,
            hovertemplate="%{y:.4g} " + self._unit.name,
            **position,
        )


def _scale(least_seconds: float, greatest_seconds: float, unit: TimeUnit) -> dict[str, object]:
    if greatest_seconds <= 6 * least_seconds:
        return {"rangemode": "tozero"}
    ticks = round_ticks(unit.per_second * least_seconds, unit.per_second * greatest_seconds)
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
