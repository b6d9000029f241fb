"""`dreamddp profile`: the arguments and the work are those of dreamddp.trainer."""

import argparse

from dreamddp.trainer import add_profile_arguments, print_profile_table, run_profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_profile_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, object] | None:
    return run_profile(args)


def print_table(result: dict[str, object]) -> None:
    print_profile_table(result)
