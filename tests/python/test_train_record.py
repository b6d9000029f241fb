"""A record survives the round trip; what is not one is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dreamddp.training.record import RECORD_FORMAT, RecordWriter, of_kind, read_record

RUN: dict[str, Any] = {"kind": "run", "format": RECORD_FORMAT}


def write(path: Path, *records: dict[str, Any]) -> Path:
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return path


def test_round_trip(tmp_path: Path) -> None:
    records = [RUN, {"kind": "step", "planner": "ddp", "step": 0, "loss": 0.1, "name": "µ\n"}]
    assert read_record(write(tmp_path / "r", *records)) == records


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    path = write(tmp_path / "r", RUN, {"kind": "row", "loss": float("nan"), "deep": [{"x": float("inf")}]})
    assert read_record(path)[1] == {"kind": "row", "loss": None, "deep": [{"x": None}]}


def test_record_needs_a_kind(tmp_path: Path) -> None:
    with (
        RecordWriter(tmp_path / "r") as writer,
        pytest.raises(ValueError, match="expected an object with a kind"),
    ):
        writer.write({"step": 1})


def test_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "r", RUN, {"kind": "row", "planner": "ddp"})
    path.write_text(path.read_text() + '{"kind": "ro')
    assert [record["kind"] for record in read_record(path)] == ["run", "row"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: got something else; expected a run"),
        ('{"kind": "row"}\n', "line 1: got something else; expected a run"),
        ('{"kind": "run", "format": "dreamddp-run/9"}\n', "line 1: got something else; expected a run"),
        ('{"kind": "run", "format": "dreamddp-run/1"}\n{"a": }\n', "line 2, column 7"),
        ('{"kind": "run", "format": "dreamddp-run/1"}\n[1]\n', "line 2: got \\[1\\]"),
    ],
)
def test_what_is_no_record_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_record(path)


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "r", RUN)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"kind": "step", "name": "a\u2028b\x85c"}\n')
    assert read_record(path)[1]["name"] == "a\u2028b\x85c"


def test_missing_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the record of a run"):
        read_record(tmp_path / "none")


def test_selection_by_kind_and_fields() -> None:
    records = [{"kind": "step", "step": 1}, {"kind": "step", "step": 2}, {"kind": "row", "step": 1}]
    assert of_kind(records, "step") == records[:2]
    assert of_kind(records, "step", step=1) == records[:1]
