"""`dreamddp simulate`: times a plan."""

import argparse

from dreamddp._core import Plan, Profile, simulate, simulate_timeline, to_chrome_trace, write_text_file
from dreamddp.commands.link_arguments import add_link_arguments, link_from
from dreamddp.commands.output_file import check_output
from dreamddp.commands.row_table import print_row
from dreamddp.simulation_row import Row, simulation_row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a profile file")
    parser.add_argument("plan", metavar="PLAN", help="a plan file")
    parser.add_argument(
        "--trace", metavar="FILE", help="write one period as a Chrome trace, which Perfetto opens"
    )
    add_link_arguments(parser)


def run(args: argparse.Namespace) -> Row:
    check_output("--trace", args.trace, args.profile, args.plan)
    link = link_from(args)
    profile = Profile.load(args.profile)
    plan = Plan.load(args.plan)
    row = simulation_row(plan, simulate(plan, profile, link))
    if args.trace is not None:
        write_text_file(args.trace, to_chrome_trace(simulate_timeline(plan, profile, link)))
    return row


def print_table(result: Row) -> None:
    print_row(result)
