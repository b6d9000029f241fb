"""The loss of a run's planners, over steps and over seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dreamddp.plotting.palette import apply_style, planner_colour

_SMOOTHED_STEPS = 5


def plot_losses(steps: Mapping[str, Sequence[Mapping[str, Any]]]) -> go.Figure:
    """Draws `step` records by planner: the mean over the ranks and over the last five steps."""
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04)
    for planner, records in steps.items():
        known = [record for record in records if record["loss"] is not None]
        losses = _smoothed([record["loss"] for record in known])
        for column, places in (
            (1, [record["step"] + 1 for record in known]),
            (2, [record["elapsed_seconds"] for record in known]),
        ):
            figure.add_trace(
                go.Scatter(
                    name=planner,
                    legendgroup=planner,
                    showlegend=column == 1,
                    mode="lines",
                    line={"color": planner_colour(planner), "width": 2},
                    x=places,
                    y=losses,
                    hovertemplate="%{y:.3f} at %{x:.4g}<extra>" + planner + "</extra>",
                ),
                row=1,
                col=column,
            )
    apply_style(figure)
    figure.update_layout(height=400, legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0})
    figure.update_xaxes(title="steps", rangemode="tozero", col=1)
    figure.update_xaxes(title="seconds of training", rangemode="tozero", col=2)
    figure.update_yaxes(title="training loss", col=1)
    return figure


def _smoothed(losses: Sequence[float]) -> list[float]:
    return [
        statistics.fmean(losses[max(0, last + 1 - _SMOOTHED_STEPS) : last + 1]) for last in range(len(losses))
    ]
