"""What each planner sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dreamddp._core import format_num_bytes
from dreamddp.plotting.palette import apply_style, planner_colour


def plot_traffic(rows: Sequence[Mapping[str, Any]], model_bytes: float) -> go.Figure:
    """Draws the `row` records: bytes averaged in an iteration, and what that saves of averaging the whole
    model, which has `model_bytes`, every time.
    """
    known = [row for row in rows if row["bytes_per_iteration"] is not None]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[row["planner"] for row in known],
            x=[row["bytes_per_iteration"] / 2**20 for row in known],
            marker={"color": [planner_colour(row["planner"]) for row in known]},
            text=[
                f"{format_num_bytes(row['bytes_per_iteration'])}, saves {_saved(row, model_bytes):.0%}"
                for row in known
            ],
            textposition="auto",
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    apply_style(figure)
    figure.update_layout(height=36 * len(known) + 110, bargap=0.25)
    figure.update_xaxes(title="MiB of parameters or gradients averaged in an iteration", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def _saved(row: Mapping[str, Any], model_bytes: float) -> float:
    return 1 - float(row["bytes_per_iteration"]) / model_bytes if model_bytes > 0 else 0.0
