"""What computes and what is on the link, planner by planner, on one time axis."""

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from dreamddp._core import Profile, Span, SpanKind, format_seconds, simulate_timeline
from dreamddp.comparison import Case
from dreamddp.plotting.palette import SPAN_COLOURS, SPAN_EDGE_COLOURS, apply_style
from dreamddp.plotting.time_axis import unit_for

_ROW_HEIGHT = 70  # pixels per planner
_COMPUTE_ROW, _LINK_ROW = -0.19, 0.19  # offsets from the planner's row; rows grow downwards


def plot_planner_timelines(profile: Profile, cases: Sequence[Case]) -> go.Figure:
    """As many iterations as the longest period has; shorter periods are repeated.

    At first the axis ends where slow planners would make fast ones too small to see.
    """
    figure = go.Figure()
    num_iterations = max(case.plan.period for case in cases)
    names = [case.plan.planner for case in cases]
    totals = [num_iterations * case.iteration_seconds for case in cases]
    shown_seconds = min(max(totals), 2.5 * min(totals))
    unit = unit_for(shown_seconds)
    spans: dict[SpanKind, list[tuple[int, Span, float]]] = {kind: [] for kind in SpanKind}
    for row, case in enumerate(cases):
        one_period = list(_merged(simulate_timeline(case.plan, profile, case.link)))
        for repetition in range(num_iterations // case.plan.period):
            shift = repetition * case.plan.period * case.iteration_seconds
            for span in one_period:
                spans[span.kind].append((row, span, shift))
    for kind, shown in spans.items():
        figure.add_bar(
            orientation="h",
            name=kind.name,
            base=[unit.per_second * (span.begin_seconds + shift) for _, span, shift in shown],
            x=[unit.per_second * (span.end_seconds - span.begin_seconds) for _, span, _ in shown],
            y=[row + (_LINK_ROW if kind is SpanKind.link else _COMPUTE_ROW) for row, _, _ in shown],
            width=0.36,
            marker={
                "color": SPAN_COLOURS[kind.name],
                "line": {"width": 0.5, "color": SPAN_EDGE_COLOURS[kind.name]},
            },
            customdata=[
                [names[row], span.name, format_seconds(span.end_seconds - span.begin_seconds)]
                for row, span, _ in shown
            ],
            hovertemplate="%{customdata[0]}: %{customdata[1]}<br>%{customdata[2]}<extra></extra>",
        )
    apply_style(figure)
    figure.update_layout(
        barmode="overlay",
        height=_ROW_HEIGHT * len(cases) + 140,
        dragmode="zoom",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
    )
    figure.update_yaxes(
        tickvals=list(range(len(cases))),
        ticktext=names,
        ticklabelstandoff=6,
        range=[len(cases) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
        zeroline=False,
    )
    figure.update_xaxes(
        title=f"time ({unit.name})",
        range=[0, unit.per_second * shown_seconds],
        zeroline=False,
        ticks="outside",
    )
    return figure


def _merged(spans: Sequence[Span]) -> Iterator[Span]:
    """Joins layers of a forward or backward, and waits, with nothing between them: far fewer bars."""
    open_span: Span | None = None
    lasting = [span for span in spans if span.end_seconds > span.begin_seconds]
    for span in sorted(lasting, key=lambda span: (span.kind is SpanKind.link, span.begin_seconds)):
        if open_span is not None and _continues(open_span, span):
            open_span = _join(open_span, span)
            continue
        if open_span is not None:
            yield open_span
        open_span = span
    if open_span is not None:
        yield open_span


def _continues(first: Span, second: Span) -> bool:
    return first.kind is second.kind is not SpanKind.link and first.iteration == second.iteration


def _join(first: Span, second: Span) -> Span:
    return Span(
        first.kind,
        f"{first.name.partition(' .. ')[0]} .. {second.name}",
        rank=first.rank,
        iteration=first.iteration,
        begin_seconds=first.begin_seconds,
        end_seconds=second.end_seconds,
    )
