"""One plan as a table for people."""

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dreamddp.commands.rows import text_of

_LINES = {
    "iteration_seconds": "mean time of an iteration",
    "compute_seconds": "forward, backward and optimizer step",
    "link_seconds": "link busy per iteration, without latency",
    "exposed_seconds": "compute waiting for the link",
    "limit_seconds": "max(compute, link): the best for this traffic",
    "bound_seconds": "the best for this period and memory",
    "gap": "iteration over bound",
    "ops_per_iteration": "all-reduces",
    "bytes_per_iteration": "averaged by every worker",
    "staging_bytes": "memory of staging, held and carried averages",
    "planning_seconds": "spent on making the plan",
}


def print_row(row: Mapping[str, object]) -> None:
    console = Console()
    console.print(f"{row['planner']}, period {row['period']}", soft_wrap=True, highlight=False, markup=False)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for key, meaning in _LINES.items():
        if key in row:
            table.add_row(key.removesuffix("_seconds").replace("_", " "), text_of(row, key), meaning)
    console.print(table)
