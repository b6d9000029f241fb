"""The tables that people see on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dreamddp._core import format_num_bytes, format_seconds
from dreamddp.report_text import COLUMNS, link_text


def prediction_table(predictions: Sequence[Mapping[str, Any]]) -> Table:
    """What the simulator says before training."""
    table = Table(title="predicted, before training", title_justify="left")
    for heading in ("planner", "period", "iteration", "compute", "exposed", "link", "sent per iteration"):
        table.add_column(heading, justify="left" if heading == "planner" else "right")
    for plan in predictions:
        num_bytes = plan["bytes_per_iteration"]
        table.add_row(
            plan["planner"],
            str(plan["period"]),
            format_seconds(plan["predicted_seconds"]),
            format_seconds(plan["compute_seconds"]),
            format_seconds(plan["exposed_seconds"]),
            format_seconds(plan["link_seconds"]),
            "unknown" if num_bytes is None else format_num_bytes(num_bytes),
        )
    return table


def print_train_table(result: Mapping[str, Any]) -> None:
    """Shows the object of run_train() to people."""
    # A column for each planner: terminals are narrow, and there are more quantities than planners.
    table = Table()
    table.add_column("")
    for row in result["rows"]:
        table.add_column(row["planner"], justify="right")
    for column in COLUMNS:
        if column.key != "planner":
            table.add_row(column.title, *(column.text(row) for row in result["rows"]))
    console = Console()
    console.print(table)
    console.print(f"report: {Path(result['output']) / 'report.html'}", soft_wrap=True)


def print_profile_table(result: Mapping[str, Any]) -> None:
    """Shows the object of run_profile() to people."""
    parts = [
        f"{name} {format_seconds(result[f'{name}_seconds'])}" for name in ("forward", "backward", "step")
    ]
    print(
        f"{result['output']}: {result['model']}, {result['layers']} layers, "
        f"{format_num_bytes(result['num_bytes'])}, {', '.join(parts)}"
    )
    if result["bandwidth_bytes_per_second"] is not None:
        print(link_text({**result, "emulated": False}))
