"""How time and memory of planning grow with layers and period, as numbers and as a picture.

    python -m benchmarks.planning_growth [--picture planning_growth.png]

Memory is by how much the peak of a fresh process grows while it plans. The
picture needs the package kaleido and a Chrome or Chromium.
"""

from __future__ import annotations

import argparse
import multiprocessing
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from benchmarks.planning import LATENCY_SECONDS, model_of, time_planning
from benchmarks.result_file import write_result
from dreamddp import Link, make_plan

NUM_LAYERS = (100, 300, 1000, 3000, 10_000, 30_000)
PERIODS = (5, 20, 100)
LATENCIES = (0.0, LATENCY_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    rows = []
    for num_layers in NUM_LAYERS:
        for period in PERIODS:
            for latency_seconds in LATENCIES:
                rows.append(measure(num_layers, period, latency_seconds))
                print(
                    f"L = {num_layers}, H = {period}, {latency_seconds * 1e3:.1f} ms: "
                    f"{rows[-1]['planning_seconds'] * 1e3:.2f} ms, "
                    f"{rows[-1]['memory_bytes'] / 2**20:.1f} MiB",
                    flush=True,
                )
    print(write_result("planning_growth", {"rows": rows}))
    if options.picture is not None:
        draw(rows).write_image(options.picture, width=1000, height=420, scale=1.5)


def measure(num_layers: int, period: int, latency_seconds: float) -> dict[str, Any]:
    profile, link = model_of(num_layers), Link(latency_seconds=latency_seconds)
    seconds, _ = time_planning(profile, link, period)
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        memory_bytes = fresh.apply(grown_bytes, (num_layers, period, latency_seconds))
    return {
        "layers": num_layers,
        "period": period,
        "latency_seconds": latency_seconds,
        "planning_seconds": seconds,
        "memory_bytes": memory_bytes,
    }


def grown_bytes(num_layers: int, period: int, latency_seconds: float) -> int:
    """Plan, profile and result included."""
    profile, link = model_of(num_layers), Link(latency_seconds=latency_seconds)
    make_plan("balanced", model_of(2), link, period=1)  # what the first call loads
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = status_bytes("VmRSS")
    plan = make_plan("balanced", profile, link, period=period)
    assert plan.ops
    return max(status_bytes("VmHWM") - before, 0)


def status_bytes(field: str) -> int:
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:")
    )
    return int(line.split()[1]) * 1024


def draw(rows: list[dict[str, Any]]) -> go.Figure:
    figure = make_subplots(
        1, 2, subplot_titles=("time (ms)", "memory (MiB)"), horizontal_spacing=0.08, shared_xaxes=True
    )
    colours = dict(zip(PERIODS, ("#1f77b4", "#2ca02c", "#d62728"), strict=True))
    for period in PERIODS:
        for latency in LATENCIES:
            mine = [row for row in rows if row["period"] == period and row["latency_seconds"] == latency]
            name = f"H = {period}" + (f", {latency * 1e3:.1f} ms of latency" if latency else "")
            for column, (key, unit) in enumerate((("planning_seconds", 1e-3), ("memory_bytes", 2**20)), 1):
                figure.add_scatter(
                    x=[row["layers"] for row in mine],
                    y=[row[key] / unit or None for row in mine],
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1,
                    mode="lines+markers",
                    line={"color": colours[period], "dash": "dash" if latency else "solid"},
                    row=1,
                    col=column,
                )
    figure.update_xaxes(type="log", title_text="layers")
    figure.update_yaxes(type="log")
    figure.update_layout(template="plotly_white", margin={"l": 50, "r": 20, "t": 40, "b": 50})
    return figure


if __name__ == "__main__":
    main()
