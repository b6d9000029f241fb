"""Output files of commands."""

import os
from pathlib import Path

from dreamddp._core import reject


def check_output(flag: str, output: str | None, *inputs: str | Path) -> None:
    """Raises ValueError where an output, however it is spelled, is one of the inputs."""
    if output is None or not os.path.exists(output):
        return
    for path in inputs:
        if os.path.exists(path) and os.path.samefile(output, path):
            reject(flag, f"'{output}'", "another file than the input", "Give a name that does not exist yet.")
