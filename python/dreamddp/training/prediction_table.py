"""The table that people see before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from dreamddp._core import format_num_bytes, format_seconds


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
            format_seconds(plan["iteration_seconds"]),
            format_seconds(plan["compute_seconds"]),
            format_seconds(plan["exposed_seconds"]),
            format_seconds(plan["link_seconds"]),
            "unknown" if num_bytes is None else format_num_bytes(num_bytes),
        )
    return table
