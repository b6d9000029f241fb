"""Whole numbers in flags."""

import argparse

_LARGEST = 2**31 - 1


def whole_number(text: str) -> int:
    """For argparse's `type`. What is too small the core says; what is too large is said here."""
    try:
        number = int(text)
    except ValueError:
        number = _LARGEST + 1
    if abs(number) > _LARGEST:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise argparse.ArgumentTypeError(f"got {shown!r}; expected a whole number up to {_LARGEST}")
    return number
