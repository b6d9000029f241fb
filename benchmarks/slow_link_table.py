"""The table and the picture of `benchmarks.slow_link`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plotly.subplots import make_subplots
from rich.console import Console
from rich.table import Table

from benchmarks.result_file import FOLDER
from dreamddp._core import format_bytes_per_second, format_num_bytes, format_seconds
from dreamddp.plotting.palette import LIMIT_COLOUR, PLANNER_COLOURS, SPAN_COLOURS, apply_style
from dreamddp.report_text import Column

COLUMNS = (
    Column("", "title", str),
    Column("iteration", "iteration_seconds", format_seconds),
    Column("mean", "iteration_mean_seconds", format_seconds),
    Column("predicted", "predicted_seconds", format_seconds),
    Column("link", "link_seconds", format_seconds),
    Column("over limit", "over_limit", "{:.3f}".format),
    Column("over DDP", "over_ddp", "{:.3f}".format),
    Column("sent", "bytes_per_iteration", format_num_bytes),
    Column("loss", "loss_at_equal_steps", "{:.3f}".format),
)


def print_table(result: Mapping[str, Any]) -> None:
    table = Table()
    for column in COLUMNS:
        table.add_column(column.title, justify="left" if column.key == "title" else "right")
    for row in result["rows"]:
        if "missing" in row:
            table.add_row(row["title"], f"not installed: {', '.join(row['missing'])}")
        elif "failed" in row:
            table.add_row(row["title"], "failed")
        else:
            table.add_row(*(column.text(row) for column in COLUMNS))
    link = result["measured_link"]
    if link:
        rate = format_bytes_per_second(link["bandwidth_bytes_per_second"])
        latency = format_seconds(link["latency_seconds"])
        table.caption = f"limit: max(compute, link). The link as measured: {rate}, {latency} an all-reduce"
    if "drift" in result:
        table.caption = (
            f"{table.caption or ''}\n{result['rows'][0]['title']} at the end: ×{result['drift']:.2f}"
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def draw(path: Path) -> None:
    """Iteration times of all result files of the benchmark, one below the other."""
    results = [json.loads(file.read_text())["result"] for file in sorted(FOLDER.glob("slow_link_*.json"))]
    titles = [
        f"{result['settings']['workers']} workers, {result['settings']['bandwidth']}, H = "
        f"{result['settings']['period']}"
        for result in results
    ]
    figure = make_subplots(1, len(results), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    for number, result in enumerate(results, 1):
        rows = [row for row in result["rows"] if "iteration_seconds" in row]
        names = [row["title"] for row in rows]
        milliseconds = [row["iteration_seconds"] * 1e3 for row in rows]
        colours = [
            SPAN_COLOURS["backward"] if "DreamDDP" in name else PLANNER_COLOURS["ssgd"] for name in names
        ]
        figure.add_bar(
            orientation="h",
            x=milliseconds,
            y=names,
            marker={"color": colours},
            text=[f"{value:.0f} ms" for value in milliseconds],
            textposition="inside",
            insidetextanchor="start",
            insidetextfont={"color": "white"},
            showlegend=False,
            row=1,
            col=number,
        )
        for name, key, symbol, colour in (
            ("predicted", "predicted_seconds", "diamond-tall", SPAN_COLOURS["wait"]),
            ("max(compute, link)", "limit_seconds", "line-ns-open", LIMIT_COLOUR),
        ):
            marked = [row for row in rows if row.get(key)]
            figure.add_scatter(
                x=[row[key] * 1e3 for row in marked],
                y=[row["title"] for row in marked],
                name=name,
                legendgroup=name,
                showlegend=number == 1,
                mode="markers",
                marker={"symbol": symbol, "size": 14, "color": colour, "line": {"width": 2}},
                row=1,
                col=number,
            )
    apply_style(figure)
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title="milliseconds per iteration", rangemode="tozero")
    figure.update_layout(legend={"orientation": "h", "y": -0.2}, margin={"l": 160, "r": 60, "t": 40, "b": 90})
    figure.write_image(path, width=1100, height=430, scale=1.5)
