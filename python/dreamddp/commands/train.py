"""`dreamddp train`: the arguments and the work are those of dreamddp.trainer."""

import argparse

from dreamddp.trainer import add_train_arguments, print_train_table, run_train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_train_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, object] | None:
    return run_train(args)


def print_table(result: dict[str, object]) -> None:
    print_train_table(result)
