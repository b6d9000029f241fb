"""Values of a command's result as people read them."""

from collections.abc import Mapping

from dreamddp._core import format_num_bytes, format_seconds
from dreamddp.comparison import gap_text


def text_of(row: Mapping[str, object], key: str) -> str:
    """The value with its unit, which the key's ending tells; "unknown" for a missing one."""
    value = row[key]
    if value is None:
        return "unknown"
    if isinstance(value, float) and key.endswith("_seconds"):
        return format_seconds(value)
    if isinstance(value, int | float) and "bytes" in key:
        return format_num_bytes(value)
    if isinstance(value, float) and key == "gap":
        return gap_text(value)
    if isinstance(value, float) and key == "speedup":
        return f"{value:.2f}x"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)
