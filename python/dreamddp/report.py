"""A run's record as one page that needs nothing else, not even a network. Does not import torch."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from dreamddp.plotting.training_bars import plot_iteration_bars
from dreamddp.plotting.training_loss import plot_loss
from dreamddp.plotting.training_timeline import plot_timelines
from dreamddp.report_text import COLUMNS, describe_run, headline
from dreamddp.training.record import RECORD_NAME, Record, of_kind, read_record

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0 .8rem; max-width: 60rem; }
.headline { font-size: 1.15rem; }
.note { color: #555; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
.pair > div { min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { font-weight: 600; color: #444; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td:first-child { font-weight: 600; }
@media (max-width: 900px) { .pair { grid-template-columns: 1fr; } }
"""


def write_report(run_folder: Path, output: Path) -> None:
    """Reads the record of a run and writes the page.

    Raises ValueError where the folder holds no record, or that of a run that did not end.
    """
    records = read_record(run_folder / RECORD_NAME)
    if not of_kind(records, "row"):
        raise ValueError(
            f"{run_folder / RECORD_NAME}: got a run without results; expected one that has ended. "
            "Its failure.txt, where there is one, says why it has not."
        )
    output.write_text(render_report(records), encoding="utf-8")


def render_report(records: list[Record]) -> str:
    """The page of a record that read_record() gave; it has at least one row."""
    rows = of_kind(records, "row")
    planners = [row["planner"] for row in rows]
    spans = {name: of_kind(records, "span", planner=name) for name in planners}
    steps = {name: of_kind(records, "step", planner=name) for name in planners}
    plans = {plan["planner"]: plan for plan in of_kind(records, "plan")}
    recorded = {name: some for name, some in spans.items() if some}
    parts = [
        "<h1>Training over a slow link</h1>",
        f'<p class="headline">{html.escape(headline(rows))}</p>',
        f'<p class="note">{html.escape(describe_run(records))}</p>',
        _table(rows),
        "<h2>Where the time of an iteration goes</h2>",
        "<p>As measured, and as the simulator said before training.</p>",
        _figure(plot_iteration_bars(rows, plans)),
    ]
    if recorded:
        parts += [
            "<h2>A few real iterations</h2>",
            "<p>All on one axis of time: what counts is how often the compute lane is stopped by a wait. "
            "Drag to zoom; double-click to see everything. trace.json has the same for Perfetto.</p>",
            _figure(plot_timelines(recorded)),
        ]
    parts += [
        "<h2>Loss</h2>",
        "<p>Mean over the ranks, smoothed over five steps.</p>",
        '<div class="pair">',
        f"<div>{_figure(plot_loss(steps, over_seconds=False))}</div>",
        f"<div>{_figure(plot_loss(steps, over_seconds=True))}</div>",
        "</div>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>DreamDDP: a training run</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _figure(figure: Any) -> str:
    text: str = figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True}
    )
    return text


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{html.escape(column.title)}</th>" for column in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(column.text(row))}</td>" for column in COLUMNS) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
