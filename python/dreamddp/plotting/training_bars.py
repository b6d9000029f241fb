"""Where the time of an iteration goes, measured and predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dreamddp.plotting.palette import SPAN_COLOURS, apply_style

_BAR_HEIGHT = 34  # pixels


def plot_iteration_bars(
    rows: Sequence[Mapping[str, Any]], plans: Mapping[str, Mapping[str, Any]]
) -> go.Figure:
    """Draws the `row` records, and the `plan` records by planner: compute and exposed communication of an
    iteration as measured, and under it as predicted.
    """
    bars = [(row["planner"], what, source) for row in rows for what, source in _sources(row, plans)]
    figure = go.Figure()
    for part, colour, name in (
        ("compute_seconds", SPAN_COLOURS["backward"], "compute"),
        ("exposed_seconds", SPAN_COLOURS["wait"], "exposed communication"),
    ):
        figure.add_trace(
            go.Bar(
                orientation="h",
                name=name,
                y=[[planner for planner, _, _ in bars], [what for _, what, _ in bars]],
                x=[source[part] for _, _, source in bars],
                marker={
                    "color": colour,
                    "opacity": [0.45 if what == "predicted" else 1 for _, what, _ in bars],
                },
                text=[f"{source[part]:.3f} s" if source[part] >= 0.005 else "" for _, _, source in bars],
                textposition="auto",
                hovertemplate=f"{name}: %{{x:.4f}} s<extra>%{{y}}</extra>",
            )
        )
    apply_style(figure)
    figure.update_layout(
        height=_BAR_HEIGHT * len(bars) + 120,
        barmode="stack",
        bargap=0.2,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "traceorder": "normal"},
    )
    figure.update_xaxes(title="seconds per iteration", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return figure


def _sources(
    row: Mapping[str, Any], plans: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, Mapping[str, Any]]]:
    plan = plans.get(row["planner"])
    return [("measured", row)] + ([("predicted", plan)] if plan is not None else [])
