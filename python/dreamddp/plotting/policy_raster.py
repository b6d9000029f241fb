"""What policies decided: which layer was averaged in which iteration, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dreamddp.plotting.palette import RULE_COLOURS, apply_style

_ROW_HEIGHT, _MOST_HEIGHT = 20, 1200  # pixels


def plot_raster(decisions: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Draws `decisions` records: a row for each layer in the order of the model, a column for each iteration,
    coloured by the rule that made the layer due; blank where it was left out.
    """
    layers = [layer["layer"] for layer in decisions[0]["layers"]]
    rules = [rule for rule in RULE_COLOURS if _ever_due(decisions, rule)]
    places = {rule: place for place, rule in enumerate(rules)}
    figure = go.Figure(
        go.Heatmap(
            x=[record["iteration"] for record in decisions],
            y=layers,
            z=[
                [places[entry["rule"]] if entry["is_due"] else None for entry in row]
                for row in _by_layer(decisions)
            ],
            zmin=-0.5,
            zmax=len(rules) - 0.5,
            colorscale=_steps([RULE_COLOURS[rule] for rule in rules]),
            showscale=False,
            text=[[_reason(entry) for entry in row] for row in _by_layer(decisions)],
            hovertemplate="%{y}, iteration %{x}<br>%{text}<extra></extra>",
            hoverongaps=True,
            xgap=1 if len(decisions) <= 200 else 0,
            ygap=1,
        )
    )
    for rule in rules:  # a heat map has no legend of its own
        figure.add_trace(
            go.Scatter(
                name=rule,
                x=[None],
                y=[None],
                mode="markers",
                marker={"symbol": "square", "size": 12, "color": RULE_COLOURS[rule]},
            )
        )
    apply_style(figure)
    figure.update_layout(
        height=min(_MOST_HEIGHT, _ROW_HEIGHT * len(layers) + 130),
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "itemclick": False},
    )
    figure.update_xaxes(title="iteration", showgrid=False)
    figure.update_yaxes(
        autorange="reversed",
        automargin=True,
        showgrid=False,
        type="category",
        dtick=1 if len(layers) < 50 else None,
    )
    return figure


def _by_layer(decisions: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], ...]]:
    return list(zip(*(record["layers"] for record in decisions), strict=True))


def _ever_due(decisions: Sequence[Mapping[str, Any]], rule: str) -> bool:
    return any(
        entry["is_due"] and entry["rule"] == rule for record in decisions for entry in record["layers"]
    )


def _steps(colours: Sequence[str]) -> list[tuple[float, str]]:
    """A colour scale of equal steps."""
    count = max(1, len(colours))
    return [(edge / count, colour) for i, colour in enumerate(colours) for edge in (i, i + 1)] or [
        (0.0, "#000000"),
        (1.0, "#000000"),
    ]


def _reason(entry: Mapping[str, Any]) -> str:
    similarity = entry["similarity"]
    seen = "" if similarity is None else f"<br>similarity {similarity:.3f}"
    values = ["?" if entry[key] is None else f"{entry[key]:.3g}" for key in ("value", "limit")]
    return f"{entry['treatment']}: {entry['rule']}, {' against '.join(values)}{seen}"
