"""The check that the extension modules fit the installed PyTorch."""

from __future__ import annotations

import re
from importlib import metadata

TESTED_VERSIONS = ("2.13",)


def check_torch_version() -> None:
    """Checks that the installed PyTorch, if any, is one that the extension modules were built for.

    Does not import torch: a module built for another minor version would end in a missing symbol, or in a
    crash, as soon as it is loaded. Without PyTorch there is nothing to check; planning does not need it.

    Raises:
        ImportError: PyTorch has another minor version; the message says what to do.
    """
    from dreamddp import _core

    try:
        installed = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return
    require_same_minor(installed, _core.built_for_torch)


def require_same_minor(installed: str, built_for: str) -> None:
    """Raises ImportError unless both versions, such as "2.13.0+cpu", have the same major and minor number."""
    public = built_for.partition("+")[0]
    if _minor(installed) != _minor(built_for):
        raise ImportError(
            f"dreamddp was built for PyTorch {public}, but {installed} is installed. Build it again in this "
            f"environment (`pip install --no-build-isolation --force-reinstall --no-deps .`; tested with "
            f"PyTorch {', '.join(TESTED_VERSIONS)}), or go back with `pip install torch=={public}`."
        )


def _minor(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise ImportError(f"the installed torch has a version that cannot be read: {version!r}")
    return int(match[1]), int(match[2])
