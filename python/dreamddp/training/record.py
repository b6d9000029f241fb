"""The record of a run: JSON lines, each an object with a `kind`.

| kind | one per | holds |
|---|---|---|
| run | run | format, config, versions, machine, begin |
| profile | run | the measured profile, in the profile file's format |
| link | run | the link that was planned for; emulated or measured |
| plan | planner | period, ops and bytes per iteration, predicted times |
| step | planner and step | loss, seconds and exposed_seconds of the slowest rank, elapsed_seconds |
| decisions | iteration with policies | planner, iteration, and of each layer what was decided, and why |
| span | span of a timeline | source (`run` or `simulation`), planner, span, name, rank, iteration, times |
| row | planner | the planner's line of the final table |

Times are in seconds, sizes in bytes. A number that is not finite is written as null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from dreamddp._core import reject
from dreamddp.training.record_fields import REMEDY

RECORD_FORMAT = "dreamddp-run/1"
RECORD_NAME = "record.jsonl"

Record = dict[str, Any]

_NO_RECORD_REMEDY = "Give the folder that a run of dreamddp train has written."


class RecordWriter:
    """Appends records to a file; every line is on its way to the disk when write() returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends one record. Raises ValueError where it has no kind, OSError where the disk is full."""
        if not isinstance(record.get("kind"), str):
            reject("record", repr(dict(record)), "an object with a kind", "Add the kind.")
        self._file.write(json.dumps(finite_or_none(dict(record)), allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Ends the record; may be called twice."""
        self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def finite_or_none(value: Any) -> Any:
    """The value with every number that is not finite, at any depth, replaced by None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: finite_or_none(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(item) for item in value]
    return value


def read_record(path: Path) -> list[Record]:
    """The records of a run, in order.

    Raises ValueError naming file and line where a line is no object with a kind, or the first one is not
    that of a run in this format. A last line that was cut off (the run was killed) is left out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reject(str(path), (error.strerror or str(error)).lower(), "the record of a run", _NO_RECORD_REMEDY)
    except UnicodeDecodeError:
        reject(str(path), "text that is not UTF-8", "the record of a run", _NO_RECORD_REMEDY)
    records: list[Record] = []
    # A line ends with \n alone: other separators may stand in strings. What follows the last one was cut off.
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        records.append(_parse_line(path, number, line))
    if not records or records[0]["kind"] != "run" or records[0].get("format") != RECORD_FORMAT:
        reject(f"{path}, line 1", "something else", f"a run in the format {RECORD_FORMAT}", _NO_RECORD_REMEDY)
    return records


def _parse_line(path: Path, number: int, line: str) -> Record:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        place = f"{path}, line {number}, column {error.colno}"
        reject(place, f"a syntax error ({error.msg})", "a JSON object", REMEDY)
    except (RecursionError, ValueError) as error:  # such as a number of too many digits
        reject(f"{path}, line {number}", type(error).__name__, "a JSON object", REMEDY)
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        reject(
            f"{path}, line {number}",
            line.strip()[:60],
            "an object with a kind",
            REMEDY,
        )
    return record


def of_kind(records: list[Record], kind: str, **fields: object) -> list[Record]:
    """The records of one kind whose fields have the given values."""
    return [r for r in records if r["kind"] == kind and all(r.get(k) == v for k, v in fields.items())]
