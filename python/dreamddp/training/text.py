"""The text to train on, as bytes."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

from dreamddp._core import reject

MAX_TEXT_BYTES = 8 << 20
# One part in so many, the last one, is held out.
HELD_OUT_PARTS = 16
SKIPPED_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test"})


def read_text(data: Path | None, *, min_bytes: int) -> bytes:
    """The bytes of a file, of all files of a folder, or (None) of the standard library's source files.

    Files come in the order of their paths; reading stops at 8 MiB, so the same path gives the same text.
    Raises ValueError naming `--data` where it cannot be read or holds fewer than `min_bytes`.
    """
    root = data if data is not None else Path(sysconfig.get_path("stdlib"))
    if not root.exists():
        reject("--data", str(root), "a file or a folder that exists", "Correct the path.")
    try:
        text = _read_files(_files(root, ".py" if data is None else ""))
    except OSError as error:
        reject("--data", str(root), "files that can be read", f"{error}.")
    if len(text) < min_bytes:
        reject(
            "--data",
            f"{root} with {len(text)} bytes",
            f"at least {min_bytes} bytes of text",
            "Give more text.",
        )
    return text


def min_text_bytes(window_bytes: int) -> int:
    """How much text is needed for sequences of that length, so that the held-out part has at least two."""
    return 2 * window_bytes * HELD_OUT_PARTS


def _files(path: Path, suffix: str) -> Iterator[Path]:
    """The file itself, or those below the folder in the order of their paths."""
    if path.is_file():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            if entry.name not in SKIPPED_FOLDERS:
                yield from _files(entry, suffix)
        elif entry.is_file() and entry.name.endswith(suffix):
            yield entry


def _read_files(paths: Iterator[Path]) -> bytes:
    parts: list[bytes] = []
    wanted = MAX_TEXT_BYTES
    for path in paths:
        with path.open("rb") as file:
            parts.append(file.read(wanted))
        wanted -= len(parts[-1])
        if wanted == 0:
            break
    return b"".join(parts)
