"""`dreamddp simulate` on the timelines that were worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.python.conftest import TIMELINES, RunCommand

KEYS = {
    "planner",
    "period",
    "iteration_seconds",
    "compute_seconds",
    "link_seconds",
    "exposed_seconds",
    "limit_seconds",
    "bound_seconds",
    "gap",
    "ops_per_iteration",
    "staging_bytes",
    "bytes_per_iteration",
}


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda timeline: timeline["what"])
def test_hand_worked_timelines(timeline: dict[str, Any], tmp_path: Path, command: RunCommand) -> None:
    outcome = command(
        "simulate",
        write(tmp_path / "profile.json", timeline["profile"]),
        write(tmp_path / "plan.json", timeline["plan"]),
        "--latency",
        timeline["latency"],
        "--in-flight",
        timeline["in_flight"],
        "--json",
    )
    result = outcome.result
    assert set(result) == KEYS
    for key, value in timeline["expected"].items():
        assert result[key] == pytest.approx(value, rel=1e-9, abs=1e-12), key
    assert result["planner"] == timeline["plan"]["planner"]
    assert result["period"] == timeline["plan"]["period"]
    assert result["ops_per_iteration"] == len(timeline["plan"]["ops"]) / timeline["plan"]["period"]
    assert result["gap"] == pytest.approx(
        result["iteration_seconds"] / result["bound_seconds"] - 1, abs=1e-12
    )
    assert outcome.err == ""


def test_trace_holds_one_period(tmp_path: Path, command: RunCommand) -> None:
    timeline = TIMELINES[1]  # wait-free backward: 11 ms, two ops on the link for 6 ms
    trace = tmp_path / "trace.json"
    outcome = command(
        "simulate",
        write(tmp_path / "profile.json", timeline["profile"]),
        write(tmp_path / "plan.json", timeline["plan"]),
        "--trace",
        trace,
    )
    assert outcome.status == 0
    assert "11" in outcome.out
    spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert max(span["ts"] + span["dur"] for span in spans) == pytest.approx(11_000, rel=1e-9)
    ops = [span for span in spans if span["name"].startswith("op ")]
    assert sum(span["dur"] for span in ops) == pytest.approx(6_000, rel=1e-9)


def test_the_table_shows_every_number_with_its_unit(tmp_path: Path, command: RunCommand) -> None:
    timeline = TIMELINES[0]
    outcome = command(
        "simulate",
        write(tmp_path / "profile.json", timeline["profile"]),
        write(tmp_path / "plan.json", timeline["plan"]),
    )
    assert outcome.status == 0
    for text in ("ssgd, period 1", "13.0 ms", "7.00 ms", "6.00 ms", "18.2%"):
        assert text in outcome.out
