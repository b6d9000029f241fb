"""One plan as a table for people."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from dreamddp.commands.rows import text_of

_LINES = {
    "iteration_seconds": "mean time of an iteration",
    "compute_seconds": "forward, backward and optimizer step",
    "link_seconds": "link busy per iteration, without latency",
    "exposed_seconds": "compute waiting for the link",
    "limit_seconds": "max(compute, link): no plan with this traffic can beat it",
    "bound_seconds": "no plan of this period and memory can beat it",
    "gap": "iteration over bound",
    "ops_per_iteration": "all-reduces",
    "bytes_per_iteration": "averaged by every worker",
    "staging_bytes": "memory for staging, held and carried averages",
    "planning_seconds": "spent on making the plan",
}


def print_row(row: Mapping[str, object]) -> None:
    console = Console()
    console.print(f"{row['planner']}, period {row['period']}", soft_wrap=True, highlight=False, markup=False)
    table = Table()
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for key, meaning in _LINES.items():
        if key in row:
            table.add_row(key.removesuffix("_seconds").replace("_", " "), text_of(row, key), meaning)
    console.print(table)
