"""The planning options, shared by all commands that make plans."""

import argparse

from dreamddp._core import (
    Link,
    Profile,
    choose_period,
    default_staging_bytes,
    format_num_bytes,
    longest_period,
    parse_num_bytes,
    reject,
    training_slack,
)
from dreamddp.commands.whole_number import whole_number


def add_memory_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--staging",
        metavar="SIZE",
        help="memory for the staging ring and, beyond its "
        + format_num_bytes(default_staging_bytes)
        + ", for held and carried averages, such as 64MiB; default "
        + format_num_bytes(default_staging_bytes),
    )
    parser.add_argument(
        "--max-delay",
        metavar="D",
        type=whole_number,
        default=0,
        help="optimizer steps that a carried average may cross; default %(default)s: none are carried",
    )


def add_slack_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--slack",
        metavar="FRACTION",
        type=float,
        default=0.0,
        help="fraction of the compute time that the plan leaves free in every window, for iterations that "
        f"vary; default %(default)s; in training {training_slack}",
    )


def add_fused_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument("--fused", action="store_true", help=help_text)


def staging_bytes_from(args: argparse.Namespace) -> int:
    return default_staging_bytes if args.staging is None else parse_num_bytes(args.staging, "--staging")


def ring_bytes(staging_bytes: int) -> int:
    """The staging ring's share of the memory; the rest is for held and carried averages."""
    return min(staging_bytes, default_staging_bytes)


_MAX_DIGITS = 100  # of a number that is looked at: Python refuses to read very long ones


def period_from(
    text: str, profile: Profile, link: Link, field: str, *, slack: float = 0.0, fused_update: bool = False
) -> int:
    """A number of iterations; for "auto" the smallest period at which the link no longer limits."""
    given = parse_period(text, field)
    if given is not None:
        return given
    return choose_period(profile, link, slack=slack, fused_update=fused_update)


def parse_period(text: str, field: str) -> int | None:
    """None for "auto". ValueError where it is no number of iterations."""
    if text == "auto":
        return None
    period = int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else 0
    if not 1 <= period <= longest_period:
        reject(
            field,
            repr(text if len(text) <= 40 else f"{text[:37]}..."),
            f"a whole number from 1 to {longest_period}, or auto",
            "Give the number of iterations in which every parameter is averaged once.",
        )
    return period
