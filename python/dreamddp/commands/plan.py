"""`dreamddp plan`: makes a plan."""

import argparse
import time

from dreamddp._core import Profile, make_plan, planners, simulate
from dreamddp.commands.link_arguments import add_link_arguments, link_from
from dreamddp.commands.plan_arguments import (
    add_memory_arguments,
    check_planner,
    period_from,
    staging_bytes_from,
)
from dreamddp.commands.row_table import print_row
from dreamddp.commands.rows import Row, simulation_row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a profile file")
    summaries = "; ".join(f"{name}: {summary}" for name, summary in planners()).replace("%", "%%")
    parser.add_argument(
        "--planner", metavar="P", default="balanced", help=f"default %(default)s. One of {summaries}"
    )
    parser.add_argument("--period", metavar="H", default="auto", help="iterations, or auto (the default)")
    add_memory_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the plan")
    add_link_arguments(parser)


def run(args: argparse.Namespace) -> Row:
    link = link_from(args)
    planner = check_planner(args.planner, "--planner")
    profile = Profile.load(args.profile)
    period = period_from(args.period, profile, link, "--period")
    staging_bytes = staging_bytes_from(args)
    begin = time.perf_counter()
    plan = make_plan(
        planner, profile, link, period=period, staging_bytes=staging_bytes, max_delay=args.max_delay
    )
    planning_seconds = time.perf_counter() - begin
    row = simulation_row(plan, simulate(plan, profile, link, staging_bytes=staging_bytes))
    if args.output is not None:
        plan.save(args.output)
    return {**row, "planning_seconds": planning_seconds}


def print_table(result: Row) -> None:
    print_row(result)
