"""Runs commands in this process and gives back what they wrote."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dreamddp.cli import main

TIMELINES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "timelines.json").read_text(encoding="utf-8")
)["timelines"]


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object: all of standard output."""
        assert self.status == 0, self.err
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


RunCommand = Callable[..., Outcome]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    def run(*argv: object) -> Outcome:
        capsys.readouterr()
        status = main([str(argument) for argument in argv])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def profile_file(tmp_path: Path) -> Path:
    """Four layers: 19 ms of compute and, once in a period, 19 ms on the link."""
    path = tmp_path / "profile.json"
    timeline = next(t for t in TIMELINES if t["what"].startswith("four layers"))
    path.write_text(json.dumps(timeline["profile"]), encoding="utf-8")
    return path
