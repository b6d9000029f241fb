"""The result of `dreamddp compare`, and its table for people."""

from collections.abc import Sequence
from typing import TypedDict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dreamddp.commands.rows import text_of
from dreamddp.comparison import link_name
from dreamddp.simulation_row import Row

_COLUMNS = {
    "planner": "planner",
    "period": "period",
    "iteration_seconds": "iteration",
    "speedup": "speed-up",
    "exposed_seconds": "exposed",
    "limit_seconds": "limit",
    "gap": "over bound",
    "ops_per_iteration": "ops",
    "bytes_per_iteration": "traffic",
    "staging_bytes": "staging",
}


class Advice(TypedDict):
    """Which row to take over one link."""

    bandwidth_bytes_per_second: float | None
    planner: str
    period: int
    speedup: float
    text: str


class ComparisonResult(TypedDict):
    profile: str
    latency_seconds: float
    workers: int
    in_flight: int
    speedup_over: str
    rows: list[Row]
    advice: list[Advice]


def print_table(result: ComparisonResult) -> None:
    """One table and one sentence of advice per link."""
    console = Console()
    for advice in result["advice"]:
        bandwidth = advice["bandwidth_bytes_per_second"]
        rows = [row for row in result["rows"] if row["bandwidth_bytes_per_second"] == bandwidth]
        _print_line(console, f"{result['profile']} over {link_name(bandwidth)}")
        _print_whole(console, _table(rows))
        _print_line(console, f"Speed-ups are over {result['speedup_over']}; the limit is max(compute, link).")
        _print_line(console, advice["text"])


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    columns = [key for key in _COLUMNS if _is_telling(key, rows)]
    for key in columns:
        table.add_column(_COLUMNS[key], justify="left" if key == "planner" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(text_of(row, key) for key in columns))
    return table


def _is_telling(key: str, rows: Sequence[Row]) -> bool:
    """Columns of bytes are left out where all rows say the same: sizes unknown, nothing held or carried."""
    return "bytes" not in key or len({str(row[key]) for row in rows}) > 1


def _print_whole(console: Console, table: Table) -> None:
    """Wider than the terminal where need be: a number that is cut off is lost, a long line is not."""
    needed = console.measure(table, options=console.options.update(max_width=1000)).maximum
    Console(width=max(console.width, needed)).print(table, crop=False)


def _print_line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
