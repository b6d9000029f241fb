"""The words and numbers of a run's report and of its table on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamddp._core import format_bytes_per_second, format_num_bytes, format_seconds
from dreamddp.training.record import Record, of_kind

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of the table of planners."""

    title: str
    key: str
    form: Callable[[Any], str]

    def text(self, row: Row) -> str:
        """The cell; a dash where the value is unknown."""
        value = row.get(self.key)
        return "–" if value is None else self.form(value)


COLUMNS = (
    Column("planner", "planner", str),
    Column("period", "period", str),
    Column("iteration", "iteration_seconds", format_seconds),
    Column("predicted", "predicted_seconds", format_seconds),
    Column("compute", "compute_seconds", format_seconds),
    Column("exposed", "exposed_seconds", format_seconds),
    Column("sent per iteration", "bytes_per_iteration", format_num_bytes),
    Column("speed-up", "speedup", "{:.2f}×".format),
    Column("loss, equal steps", "loss_at_equal_steps", "{:.3f}".format),
    Column("loss, equal time", "loss_at_equal_time", "{:.3f}".format),
    Column("held-out loss", "final_loss", "{:.3f}".format),
    Column("rank spread", "rank_spread", "{:.3g}".format),
)


def headline(rows: Sequence[Row]) -> str:
    """What was gained, against what, and how good the prediction was."""
    best = min(rows, key=lambda row: float(row["iteration_seconds"]))
    seconds = best["iteration_seconds"]
    gains = [
        f"{row['iteration_seconds'] / seconds:.1f} times as fast as {people_name(row['planner'])}"
        for row in rows
        if row is not best
    ]
    gained = f": {' and '.join(gains)}" if gains else ""
    worst = max(abs(row["predicted_seconds"] / row["iteration_seconds"] - 1) for row in rows)
    return (
        f"{people_name(best['planner'])} took {format_seconds(seconds)} per iteration{gained}. "
        f"The times predicted before training were within {worst:.0%} of the measured ones."
    )


def people_name(planner: str) -> str:
    """What a sentence calls the planner."""
    names = {"ddp": "PyTorch's DDP", "local-sgd": "Local SGD", "policy": "DreamDDP with policies"}
    return names.get(planner, f"DreamDDP ({planner})")


def describe_run(records: Sequence[Record]) -> list[str]:
    """What was run, over which link, and where: a paragraph each."""
    run = records[0]
    config, machine, versions = run["config"], run["machine"], run["versions"]
    data = "the source files of Python's standard library"
    if config["data"] is not None:
        data = Path(config["data"]).name
    paragraphs = [
        f"{config['model']} on {data}: {config['steps']} steps of {config['batch_size']} sequences per rank, "
        f"begun {run['begin']}."
    ]
    paragraphs += [f"{link_text(link)}." for link in of_kind(list(records), "link")]
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    where = f"{machine['system']} on {machine['processor']} with {machine['cores']} cores"
    return [*paragraphs, f"{where}; Python {machine['python']}, {software}."]


def link_text(link: Mapping[str, Any]) -> str:
    """The link in one line."""
    what = "an emulated" if link["emulated"] else "a measured"
    bandwidth = link["bandwidth_bytes_per_second"]
    rate = "unknown bandwidth" if bandwidth is None else format_bytes_per_second(bandwidth)
    latency = format_seconds(link["latency_seconds"])
    return f"{link['workers']} workers over {what} link of {rate} with {latency} latency"
