"""The limits of a search for a plan."""

import argparse

from dreamddp._core import SearchOptions, parse_seconds
from dreamddp.commands.whole_number import whole_number


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-nodes",
        metavar="N",
        type=whole_number,
        default=SearchOptions().max_nodes,
        help="of the planner dreamddp: take the best plan found when so many nodes have been visited; "
        "default %(default)s",
    )
    parser.add_argument(
        "--max-seconds",
        metavar="TIME",
        help="of the planner dreamddp: the same after a time, such as 10s; plans then depend on the machine",
    )


def search_from(args: argparse.Namespace) -> SearchOptions:
    max_seconds = None if args.max_seconds is None else parse_seconds(args.max_seconds, "--max-seconds")
    return SearchOptions(max_nodes=args.max_nodes, max_seconds=max_seconds)
