"""A run's record as one page that needs nothing else, not even a network. Does not import torch."""

from __future__ import annotations

from pathlib import Path

from dreamddp._core import reject
from dreamddp.plotting.page import Section, Table, write_page
from dreamddp.plotting.policy_raster import plot_raster
from dreamddp.plotting.sensitivity_over_depth import plot_sensitivity
from dreamddp.plotting.traffic_bars import plot_traffic
from dreamddp.plotting.training_bars import plot_iteration_bars
from dreamddp.plotting.training_loss import plot_losses
from dreamddp.plotting.training_timeline import plot_timelines
from dreamddp.report_text import COLUMNS, describe_run, headline
from dreamddp.training.record import RECORD_NAME, Record, of_kind, read_record
from dreamddp.training.record_fields import REMEDY, check_fields

_COLUMNS = (
    "Times are those of the slowest rank. Exposed is what compute waits for the link. The losses at equal "
    "steps and at equal time are training losses; equal time is when the fastest had done all its steps. The "
    "rank spread is the largest difference of any parameter between ranks at the end."
)
_TIMELINES = (
    "All on one axis of time: what counts is how often the compute lane is stopped by a wait. Drag to zoom, "
    "double-click to see everything. trace.json shows the same in Perfetto."
)
_TRAFFIC = "Saved of what is sent where the whole model is averaged in every iteration, as DDP does."
_RASTER = (
    "A row for each layer, from the input to the output; coloured where it was averaged, by the rule that "
    "made it due. Point at a place for the rule's value and its limit, also where a layer was left out."
)
_SENSITIVITY = (
    "How similar a layer's gradient was to that of its last average (mean, and one standard deviation over "
    "iterations), where a policy looked at it; and how long layers went from average to average."
)


def write_report(run_folder: Path, output: Path) -> None:
    """Reads the record of a run and writes the page.

    Raises ValueError where the folder holds no record, or that of a run that did not end well, and OSError
    where the page cannot be written.
    """
    records = read_record(run_folder / RECORD_NAME)
    for number, record in enumerate(records, start=1):
        check_fields(f"{run_folder / RECORD_NAME}, line {number}", record)
    _check_layers(str(run_folder / RECORD_NAME), of_kind(records, "decisions"))
    if not of_kind(records, "row"):
        reject(
            str(run_folder / RECORD_NAME),
            "a run without results",
            "one that has ended well",
            "See its failure.txt, where there is one, for what went wrong.",
        )
    write_page(output, "Training over a slow link", report_sections(records))


def _check_layers(record: str, decided: list[Record]) -> None:
    for decisions in decided:
        names = [layer["layer"] for layer in decisions["layers"]]
        expected = [layer["layer"] for layer in decided[0]["layers"]]
        if names != expected:
            place = f"{record}, decisions: layers of iteration {decisions['iteration']}"
            reject(place, ", ".join(names)[:60], "those of all other iterations", REMEDY)


def _model_bytes(records: list[Record]) -> float:
    profiles = of_kind(records, "profile")
    layers = profiles[0]["profile"]["layers"] if profiles else []
    return float(sum(layer["num_bytes"] or 0 for layer in layers))


def report_sections(records: list[Record]) -> list[Section]:
    """What the page shows of a record that read_record() gave and that has at least one row."""
    rows = of_kind(records, "row")
    planners = [row["planner"] for row in rows]
    spans = {name: of_kind(records, "span", planner=name) for name in planners}
    steps = {name: of_kind(records, "step", planner=name) for name in planners}
    plans = {plan["planner"]: plan for plan in of_kind(records, "plan")}
    table = Table(
        columns=[column.title for column in COLUMNS],
        rows=[[column.text(row) for column in COLUMNS] for row in rows],
    )
    sections = [
        Section(heading="Result", paragraphs=[headline(rows), _COLUMNS], content=table),
        Section(
            heading="Where the time of an iteration goes",
            paragraphs=["As measured, and as the simulator said before training."],
            content=plot_iteration_bars(rows, plans),
        ),
    ]
    recorded = {name: some for name, some in spans.items() if some}
    if recorded:
        sections.append(
            Section(
                heading="A few real iterations", paragraphs=[_TIMELINES], content=plot_timelines(recorded)
            )
        )
    sections.append(
        Section(heading="Traffic", paragraphs=[_TRAFFIC], content=plot_traffic(rows, _model_bytes(records)))
    )
    decided = of_kind(records, "decisions")
    if decided:
        sections += [
            Section(
                heading="What policies had averaged, and why",
                paragraphs=[_RASTER],
                content=plot_raster(decided),
            ),
            Section(
                heading="Sensitivity over depth",
                paragraphs=[_SENSITIVITY],
                content=plot_sensitivity(decided),
            ),
        ]
    return [
        *sections,
        Section(
            heading="Loss",
            paragraphs=["Mean over the ranks, smoothed over five steps."],
            content=plot_losses(steps),
        ),
        Section(heading="The run", paragraphs=describe_run(records)),
    ]
