"""The timelines of a run's planners, one under the other on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dreamddp.plotting.palette import SPAN_COLOURS, apply_style

_LANE_HEIGHT, _TITLE_HEIGHT = 26, 70  # pixels


def plot_timelines(spans: Mapping[str, Sequence[Mapping[str, Any]]]) -> go.Figure:
    """Draws `span` records by planner: for every rank a lane of compute and waits and a lane of the link, and
    the same two as the simulator predicted them.

    The axis shows the time that the slowest planner but ddp needs; the rest is there to be scrolled to.
    """
    lanes = {planner: _lanes(records) for planner, records in spans.items()}
    heights = [max(1, len(names)) for names in lanes.values()]
    figure = make_subplots(
        rows=len(spans),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        subplot_titles=[f"<b>{planner}</b>" for planner in spans],
        vertical_spacing=0.22 / max(1, len(spans)),
    )
    shown: set[str] = set()
    for row, (planner, records) in enumerate(spans.items(), start=1):
        for kind, colour in SPAN_COLOURS.items():
            of_kind = [record for record in records if record["span"] == kind]
            if of_kind:
                figure.add_trace(_bars(of_kind, kind, colour, kind not in shown), row=row, col=1)
                shown.add(kind)
        figure.update_yaxes(
            categoryorder="array",
            categoryarray=lanes[planner][::-1],
            range=[-0.6, len(lanes[planner]) - 0.4],
            row=row,
            col=1,
        )
    apply_style(figure)
    figure.update_layout(
        height=sum(heights) * _LANE_HEIGHT + len(spans) * _TITLE_HEIGHT + 60,
        barmode="overlay",
        bargap=0.15,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.04, "x": 0},
    )
    figure.update_yaxes(automargin=True, fixedrange=True)
    figure.update_xaxes(range=[0, _shown_seconds(spans)], showticklabels=True, ticksuffix=" s")
    figure.update_annotations(x=0, xanchor="left", font={"size": 14})
    return figure


def _lane(record: Mapping[str, Any]) -> str:
    who = "predicted" if record["source"] == "simulation" else f"rank {record['rank']}"
    return f"{who}, {'link' if record['span'] == 'link' else 'compute'}"


def _lanes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ranks in order, compute before link, the prediction last."""
    keys = {
        (record["source"] == "simulation", record["rank"], record["span"] == "link", _lane(record))
        for record in records
    }
    return [key[-1] for key in sorted(keys)]


def _bars(records: Sequence[Mapping[str, Any]], kind: str, colour: str, show_legend: bool) -> go.Bar:
    names = [f"{kind} {r['name']}, iteration {r['iteration']}" for r in records]
    milliseconds = [1e3 * (r["end_seconds"] - r["begin_seconds"]) for r in records]
    return go.Bar(
        orientation="h",
        name=kind,
        legendgroup=kind,
        showlegend=show_legend,
        y=[_lane(record) for record in records],
        base=[record["begin_seconds"] for record in records],
        x=[record["end_seconds"] - record["begin_seconds"] for record in records],
        marker={"color": colour, "line": {"color": "white", "width": 0.5}},
        text=names,
        textposition="none",
        customdata=milliseconds,
        hovertemplate="%{text}<br>from %{base:.4f} s, %{customdata:.2f} ms<extra></extra>",
    )


def _shown_seconds(spans: Mapping[str, Sequence[Mapping[str, Any]]]) -> float:
    def end(records: Sequence[Mapping[str, Any]]) -> float:
        return max((record["end_seconds"] for record in records if record["source"] == "run"), default=0.0)

    others = [end(records) for planner, records in spans.items() if planner != "ddp"]
    return max([*others, 0.0]) or max((end(records) for records in spans.values()), default=0.0) or 1.0
