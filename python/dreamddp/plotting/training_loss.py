"""The loss of a run's planners, over steps or over seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dreamddp.plotting.training_style import PLANNER_COLOURS, apply_layout

SMOOTHED_STEPS = 5


def plot_loss(steps: Mapping[str, Sequence[Mapping[str, Any]]], *, over_seconds: bool) -> go.Figure:
    """Draws `step` records by planner: the mean over the ranks and over the last five steps."""
    figure = go.Figure()
    for index, (planner, records) in enumerate(steps.items()):
        known = [record for record in records if record["loss"] is not None]
        figure.add_trace(
            go.Scatter(
                name=planner,
                mode="lines",
                line={"color": PLANNER_COLOURS[index % len(PLANNER_COLOURS)], "width": 2},
                x=[record["elapsed_seconds"] if over_seconds else record["step"] + 1 for record in known],
                y=_smoothed([record["loss"] for record in known]),
                hovertemplate="%{y:.3f} at %{x:.4g}<extra>" + planner + "</extra>",
            )
        )
    apply_layout(figure, height=360)
    figure.update_xaxes(title="seconds of training" if over_seconds else "steps", rangemode="tozero")
    figure.update_yaxes(title="training loss")
    return figure


def _smoothed(losses: Sequence[float]) -> list[float]:
    return [
        statistics.fmean(losses[max(0, last + 1 - SMOOTHED_STEPS) : last + 1]) for last in range(len(losses))
    ]
