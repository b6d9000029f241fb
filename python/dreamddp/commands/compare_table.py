"""The result of `dreamddp compare`, and its table for people."""

from typing import TypedDict

from rich.console import Console
from rich.table import Table

from dreamddp.commands.rows import Row, text_of
from dreamddp.comparison import link_name

_COLUMNS = {
    "planner": "planner",
    "period": "period",
    "iteration_seconds": "iteration",
    "speedup": "speed-up",
    "exposed_seconds": "exposed",
    "link_seconds": "link",
    "limit_seconds": "limit",
    "gap": "above bound",
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
        console.print(
            f"{result['profile']} over {link_name(bandwidth)}", soft_wrap=True, highlight=False, markup=False
        )
        table = Table()
        for key, title in _COLUMNS.items():
            is_text = key == "planner"
            table.add_column(title, justify="left" if is_text else "right", no_wrap=is_text)
        for row in result["rows"]:
            if row["bandwidth_bytes_per_second"] == bandwidth:
                table.add_row(*(text_of(row, key) for key in _COLUMNS))
        console.print(table)
        console.print(
            f"Speed-ups are over {result['speedup_over']}; the limit is max(compute, link).", soft_wrap=True
        )
        console.print(advice["text"], soft_wrap=True, highlight=False, markup=False)
