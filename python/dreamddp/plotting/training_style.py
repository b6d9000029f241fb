"""Colours and layout that the figures of a training run share."""

from __future__ import annotations

import plotly.graph_objects as go

SPAN_COLOURS = {
    "forward": "#8fb8de",
    "backward": "#3f7cb5",
    "step": "#1d4469",
    "wait": "#e4572e",
    "link": "#5aa469",
}
# By position in the run, so that a planner has one colour in all figures.
PLANNER_COLOURS = ("#7a7a7a", "#d98e04", "#0f6db5", "#7b4fa3", "#2a8f6d", "#c2417c")


def apply_layout(figure: go.Figure, *, height: int, **settings: object) -> None:
    """The common look: white, thin grid, one font, legend above the plot."""
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#222222"},
        height=height,
        margin={"l": 10, "r": 10, "t": 40, "b": 10},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0},
    )
    figure.update_layout(**settings)
    figure.update_xaxes(automargin=True, title_standoff=8)
    figure.update_yaxes(automargin=True, title_standoff=8)
