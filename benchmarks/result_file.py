"""Result files of benchmarks: what was measured, with which command, on which commit and hardware."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parent / "results"


def write_result(name: str, result: dict[str, Any]) -> Path:
    """Writes `results/<name>.json` and returns its path. `result` must hold JSON values only.

    In the command, folders of this machine are written as FOLDER.
    """
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    module = Path(sys.argv[0]).stem
    arguments = ["FOLDER" if Path(argument).is_dir() else argument for argument in sys.argv[1:]]
    text = {
        "command": shlex.join(["python", "-m", f"benchmarks.{module}", *arguments]),
        "commit": commit(),
        "date": date.today().isoformat(),
        "hardware": f"{cpu_model()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "result": result,
    }
    path.write_text(json.dumps(text, indent=2) + "\n")
    return path


def commit() -> str:
    """The commit that is checked out, with "+changes" where files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+changes", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return done.stdout.strip() or "unknown"


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
