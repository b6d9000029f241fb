"""How fast the gradients of layers turned under policies, from the input to the output of the model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dreamddp.plotting.palette import PLANNER_COLOURS, SPAN_COLOURS, apply_style


def plot_sensitivity(decisions: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Draws `decisions` records: for each layer the mean similarity of its gradient with that of its last
    average, and the mean number of iterations from one average to the next.
    """
    layers = [layer["layer"] for layer in decisions[0]["layers"]]
    entries = list(zip(*(record["layers"] for record in decisions), strict=True))
    similarities = [
        [entry["similarity"] for entry in row if entry["similarity"] is not None] for row in entries
    ]
    averages = [sum(entry["is_due"] for entry in row) for row in entries]
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.08,
        subplot_titles=[
            "similarity with the gradient of the last average",
            "iterations from average to average",
        ],
    )
    figure.add_trace(
        go.Bar(
            x=layers,
            y=[statistics.fmean(values) if values else None for values in similarities],
            error_y={
                "type": "data",
                "array": [statistics.pstdev(values) if values else None for values in similarities],
                "thickness": 1,
                "width": 2,
            },
            marker={"color": SPAN_COLOURS["forward"]},
            hovertemplate="%{x}: %{y:.3f}<extra></extra>",
        ),
        row=1,
        col=1,
    )
    figure.add_trace(
        go.Bar(
            x=layers,
            y=[len(decisions) / count if count else None for count in averages],
            marker={"color": PLANNER_COLOURS["policy"]},
            customdata=averages,
            hovertemplate="%{x}: %{y:.3g} (%{customdata} averages)<extra></extra>",
        ),
        row=2,
        col=1,
    )
    apply_style(figure)
    figure.update_layout(height=560, showlegend=False)
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(automargin=True, tickangle=-45, type="category")
    return figure
