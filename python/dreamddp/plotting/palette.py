"""Colours and names that mean the same in every plot."""

import plotly.graph_objects as go

PLANNER_COLOURS = {
    "balanced": "#0072b2",
    "dreamddp": "#d55e00",
    "equal-count": "#cc79a7",
    "local-sgd": "#009e73",
    "sequential": "#6a3d9a",
    "brute-force": "#56b4e9",
    "ssgd": "#6b6b6b",
    "wfbp": "#a0522d",
    "asc-wfbp": "#b8860b",
    "ddp": "#222222",
    "policy": "#c2185b",
}
OTHER_COLOUR = "#7b4fa3"

RULE_COLOURS = {
    "fixed-period": "#0072b2",
    "bounded-staleness": "#e69f00",
    "direction": "#009e73",
    "adaptive-direction": "#cc79a7",
}

SPAN_COLOURS = {
    "forward": "#56b4e9",
    "backward": "#0072b2",
    "step": "#1b3a57",
    "wait": "#d62728",
    "link": "#e69f00",
}

# So that what follows without a pause can be told apart, and what is narrow does not fade.
SPAN_EDGE_COLOURS = {**SPAN_COLOURS, "link": "#b87900"}

LIMIT_COLOUR = "#000000"


def planner_colour(planner: str) -> str:
    return PLANNER_COLOURS.get(planner, OTHER_COLOUR)


def apply_style(figure: go.Figure) -> None:
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13},
        margin={"l": 70, "r": 20, "t": 40, "b": 55},
        legend={"groupclick": "togglegroup"},
        hoverlabel={"namelength": -1},
    )
