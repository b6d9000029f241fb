"""The report of a small record that is written here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dreamddp.report import write_report
from dreamddp.report_text import headline
from dreamddp.training.record import RECORD_FORMAT, RecordWriter
from dreamddp.training.record_fields import FIELDS

RUN: dict[str, Any] = {
    "kind": "run",
    "format": RECORD_FORMAT,
    "begin": "2026-01-02T03:04:05+00:00",
    "config": {"model": "mlp", "data": "/some/where/<poems>", "steps": 2, "batch_size": 4},
    "versions": {"torch": "2.11"},
    "machine": {"system": "Linux", "processor": "x86_64", "cores": 2, "python": "3.11.7"},
}
LINK = {
    "kind": "link",
    "emulated": True,
    "bandwidth_bytes_per_second": 12.5e6,
    "latency_seconds": 1e-3,
    "workers": 2,
    "in_flight": 1,
}


def row(planner: str, seconds: float, predicted: float, exposed: float) -> dict[str, Any]:
    return {
        "kind": "row",
        "planner": planner,
        "period": 4,
        "iteration_seconds": seconds,
        "predicted_seconds": predicted,
        "compute_seconds": seconds - exposed,
        "exposed_seconds": exposed,
        "bytes_per_iteration": 1e6,
        "speedup": None,
        "final_loss": 2.125,
        "loss_at_equal_steps": 2.25,
        "loss_at_equal_time": None,
        "rank_spread": 0.0,
    }


def records_of(planner: str, seconds: float) -> list[dict[str, Any]]:
    times = {"iteration_seconds": seconds, "compute_seconds": 0.25, "exposed_seconds": seconds - 0.25}
    step = {"kind": "step", "planner": planner, "seconds": seconds}
    span = {"kind": "span", "planner": planner, "source": "run", "rank": 0, "iteration": 0}
    return [
        {"kind": "plan", "planner": planner, "period": 4, **times},
        {**step, "step": 0, "loss": 5.5, "elapsed_seconds": seconds},
        {**step, "step": 1, "loss": None, "elapsed_seconds": 2 * seconds},
        {**span, "span": "forward", "name": "h.0", "begin_seconds": 0.0, "end_seconds": 0.25},
        {**span, "span": "link", "name": "op 0: h.0", "begin_seconds": 0.125, "end_seconds": 0.25},
    ]


def write_run(folder: Path, records: list[dict[str, Any]]) -> None:
    with RecordWriter(folder / "record.jsonl") as writer:
        for record in records:
            writer.write(record)


def full_run() -> list[dict[str, Any]]:
    rows = [row("ddp", 1.0, 1.1, 0.75), row("balanced", 0.25, 0.25, 0.0)]
    return [RUN, LINK, *records_of("ddp", 1.0), *records_of("balanced", 0.25), *rows]


def figures_of(page: str) -> list[list[dict[str, Any]]]:
    found = re.findall(r'Plotly\.newPlot\(\s*"[^"]*",\s*(\[.*?\]),\s*\{"', page, flags=re.DOTALL)
    return [json.loads(traces) for traces in found]


def test_page_shows_the_run_and_needs_no_network(tmp_path: Path) -> None:
    write_run(tmp_path, full_run())
    write_report(tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("plotly.js v") >= 1
    assert re.search(r'<(script|link|img)[^>]+(src|href)="', page) is None
    assert "DreamDDP (balanced) took 250 ms per iteration: 4.0 times as fast as PyTorch&#x27;s DDP." in page
    assert "within 10% of the measured ones" in page
    assert "&lt;poems&gt;" in page
    assert "2 workers over an emulated link" in page
    assert "<td>2.125</td>" in page


def test_page_has_bars_timelines_and_losses_of_every_planner(tmp_path: Path) -> None:
    write_run(tmp_path, full_run())
    write_report(tmp_path, tmp_path / "report.html")
    bars, timelines, _, losses = figures_of((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [trace["name"] for trace in bars] == ["compute", "exposed communication"]
    assert bars[1]["y"][0] == ["ddp", "ddp", "balanced", "balanced"]
    assert {trace["name"] for trace in timelines} == {"forward", "link"}
    assert len(timelines) == 4
    assert [(trace["name"], trace["xaxis"]) for trace in losses] == [
        ("ddp", "x"),
        ("ddp", "x2"),
        ("balanced", "x"),
        ("balanced", "x2"),
    ]


def decisions(iteration: int, due: str, similarity: float | None) -> dict[str, Any]:
    rules = {"wte": ("fixed-period", 1.0, 2.0), "h": ("direction", 0.25, 0.5)}
    return {
        "kind": "decisions",
        "planner": "policy",
        "iteration": iteration,
        "layers": [
            {
                "layer": layer,
                "is_due": layer in due.split(),
                "rule": rule,
                "value": value,
                "limit": limit,
                "treatment": "alone" if layer in due.split() else "skipped",
                "similarity": similarity if layer == "h" else None,
                "gradient_norm": None,
            }
            for layer, (rule, value, limit) in rules.items()
        ],
    }


def policy_run() -> list[dict[str, Any]]:
    profile = {"kind": "profile", "profile": {"layers": [{"num_bytes": 3e6}, {"num_bytes": 1e6}]}}
    decided = [decisions(0, "", None), decisions(1, "wte h", 0.5), decisions(2, "h", -0.25)]
    rows = [row("balanced", 0.25, 0.25, 0.0), row("policy", 0.5, 0.5, 0.0)]
    policy = [record for record in records_of("policy", 0.5) if record["kind"] != "span"]
    return [RUN, profile, LINK, *records_of("balanced", 0.25), *policy, *decided, *rows]


def test_page_shows_what_policies_decided(tmp_path: Path) -> None:
    write_run(tmp_path, policy_run())
    write_report(tmp_path, tmp_path / "report.html")
    _, _, traffic, raster, sensitivity, _ = figures_of((tmp_path / "report.html").read_text("utf-8"))
    assert traffic[0]["text"] == ["976.6 KiB, saves 75%"] * 2
    assert raster[0]["y"] == ["wte", "h"]
    assert raster[0]["x"] == [0, 1, 2]
    assert raster[0]["z"] == [[None, 0, None], [None, 1, 1]]
    assert raster[0]["text"][1][2] == "alone: direction, 0.25 against 0.5<br>similarity -0.250"
    assert [trace["name"] for trace in raster[1:]] == ["fixed-period", "direction"]
    similarities, gaps = sensitivity
    assert (similarities["y"], gaps["y"]) == ([None, 0.125], [3, 1.5])


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda d: d["layers"][0].pop("rule"), "decisions: layers"),
        (lambda d: d["layers"].pop(), "layers of iteration 1"),
        (lambda d: d["layers"][0].update(rule="whim"), "decisions: layers"),
        (lambda d: d.update(layers="all"), "decisions: layers"),
    ],
)
def test_decisions_that_cannot_be_drawn_are_refused(tmp_path: Path, edit: Any, text: str) -> None:
    records = policy_run()
    edit(next(r for r in records if r["kind"] == "decisions" and r["iteration"] == 1))
    write_run(tmp_path, records)
    with pytest.raises(ValueError, match=text):
        write_report(tmp_path, tmp_path / "report.html")


def test_run_without_recorded_spans_has_no_timelines(tmp_path: Path) -> None:
    write_run(tmp_path, [record for record in full_run() if record["kind"] != "span"])
    write_report(tmp_path, tmp_path / "report.html")
    assert "A few real iterations" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_run_that_did_not_end_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, [RUN, LINK])
    with pytest.raises(ValueError, match=r"record\.jsonl: got a run without results"):
        write_report(tmp_path, tmp_path / "report.html")


def test_headline_of_a_single_planner_compares_nothing() -> None:
    assert headline([row("local-sgd", 0.5, 0.5, 0.0)]) == (
        "Local SGD took 500 ms per iteration. The times predicted before training were within 0% of the "
        "measured ones."
    )


def broken(kind: str, field: str, value: object) -> list[dict[str, Any]]:
    """A run whose first record of that kind has another value there; ... removes the field."""
    records: list[dict[str, Any]] = json.loads(json.dumps(policy_run()))
    target = next(record for record in records if record["kind"] == kind)
    *parents, last = field.split(".")
    for parent in parents:
        target = target[parent]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return records


@pytest.mark.parametrize("value", [..., [], {"a": 1}])
@pytest.mark.parametrize(("kind", "field"), [(k, f) for k, fields in FIELDS.items() for f in fields])
def test_every_field_that_is_missing_or_wrong_is_named(
    kind: str, field: str, value: object, tmp_path: Path
) -> None:
    if field == "versions" and value == {"a": 1}:
        pytest.skip("an object is right there")
    records = broken(kind, field, value)
    write_run(tmp_path, records)
    number = next(i for i, record in enumerate(records, start=1) if record["kind"] == kind)
    with pytest.raises(ValueError, match=rf"record\.jsonl, line {number}, {kind}: {re.escape(field)}: got "):
        write_report(tmp_path, tmp_path / "report.html")


@pytest.mark.parametrize("line", ["[" * 100_000, "1" * 10_000, '"\\ud800"', "{}", "[]", "{"])
def test_lines_that_are_no_records_are_named(line: str, tmp_path: Path) -> None:
    write_run(tmp_path, [RUN])
    with (tmp_path / "record.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"record\.jsonl, line 2"):
        write_report(tmp_path, tmp_path / "report.html")
