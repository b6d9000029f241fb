"""The folder that a run leaves behind."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import dreamddp
from dreamddp._core import reject
from dreamddp.training.config import TrainConfig
from dreamddp.training.record import RECORD_FORMAT, RECORD_NAME, RecordWriter, of_kind, read_record
from dreamddp.training.spans import make_trace, span_of

# The record, the trace and a report with plotly inside.
NEEDED_BYTES = 16 << 20


class RunFolder:
    """Writes the record and the files of a run as messages come in. Not thread-safe."""

    def __init__(self, config: TrainConfig) -> None:
        """Creates the folder and begins the record.

        Raises ValueError naming `--output` where it holds a run already, cannot be written, or has not
        enough room.
        """
        self.path = config.output
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                reject("--output", str(self.path), "a new or empty folder", "Choose another one.")
            _check_room(self.path / "room")
            self._record = RecordWriter(self.path / RECORD_NAME)
            self._record.write(run_record(config))
        except OSError as error:
            reject(
                "--output",
                f"{self.path} ({(error.strerror or str(error)).lower()})",
                f"a folder that can be written, with {NEEDED_BYTES >> 20} MiB to spare",
                "Choose another one.",
            )

    def take(self, message: Mapping[str, Any]) -> None:
        """Writes a record, or the file that a `file` message carries; leaves out progress."""
        if message["kind"] == "file":
            (self.path / message["name"]).write_text(message["text"], encoding="utf-8")
        elif message["kind"] != "progress":
            self._record.write(message)

    def complete(self) -> list[dict[str, Any]]:
        """Writes the trace and returns the record. The run must have ended well."""
        self._record.close()
        records = read_record(self.path / RECORD_NAME)
        spans = of_kind(records, "span", source="run")
        planners = [row["planner"] for row in of_kind(records, "row")]
        timelines = {name: [span_of(r) for r in of_kind(spans, "span", planner=name)] for name in planners}
        (self.path / "trace.json").write_text(make_trace(timelines), encoding="utf-8")
        return records

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._record.close()


def _check_room(path: Path) -> None:
    try:
        with path.open("wb") as file:
            file.write(bytes(NEEDED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)


def run_record(config: TrainConfig) -> dict[str, Any]:
    """The first record: what was asked for, and where it runs."""
    settings = asdict(config) | {"output": str(config.output), "data": config.data and str(config.data)}
    return {
        "kind": "run",
        "format": RECORD_FORMAT,
        "begin": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "config": settings,
        "versions": {"dreamddp": dreamddp.__version__} | _versions("torch", "transformers"),
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
    }


def _versions(*packages: str) -> dict[str, str]:
    return {name: metadata.version(name) for name in packages if find_spec(name) is not None}
