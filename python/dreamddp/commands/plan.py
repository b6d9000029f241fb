"""`dreamddp plan`: makes a plan."""

import argparse
import time
from typing import TypedDict

from rich.console import Console

from dreamddp._core import Profile, SearchStatistics, make_plan_and_report, planners, simulate
from dreamddp.commands.bubble_arguments import add_bubble_arguments, drift_from
from dreamddp.commands.link_arguments import add_link_arguments, link_from
from dreamddp.commands.output_file import check_output
from dreamddp.commands.plan_arguments import (
    add_fused_argument,
    add_memory_arguments,
    add_slack_argument,
    period_from,
    ring_bytes,
    staging_bytes_from,
)
from dreamddp.commands.row_table import print_row
from dreamddp.commands.search_arguments import add_search_arguments, search_from
from dreamddp.planner_names import check_planner
from dreamddp.simulation_row import Row, simulation_row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a profile file")
    summaries = "; ".join(f"{name}: {summary}" for name, summary in planners()).replace("%", "%%")
    parser.add_argument(
        "--planner", metavar="P", default="balanced", help=f"default %(default)s. One of {summaries}"
    )
    parser.add_argument("--period", metavar="H", default="auto", help="iterations, or auto (the default)")
    add_memory_arguments(parser)
    add_slack_argument(parser)
    add_fused_argument(
        parser,
        "plan for an optimizer that steps each layer inside the backward (fused_update of DreamDDP), with "
        "local-sgd, equal-count, dreamddp or balanced",
    )
    add_bubble_arguments(parser)
    add_search_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the plan")
    add_link_arguments(parser)


def run(args: argparse.Namespace) -> Row:
    check_output("-o", args.output, args.profile)
    link = link_from(args)
    planner = check_planner(args.planner, "--planner")
    profile = Profile.load(args.profile)
    period = period_from(args.period, profile, link, "--period", slack=args.slack, fused_update=args.fused)
    staging_bytes = staging_bytes_from(args)
    drift = drift_from(args, profile)
    search = search_from(args)
    begin = time.perf_counter()
    plan, statistics = make_plan_and_report(
        planner,
        profile,
        link,
        period=period,
        staging_bytes=staging_bytes,
        max_delay=args.max_delay,
        slack=args.slack,
        fill_bubbles=args.fill_bubbles,
        drift=drift,
        search=search,
        fused_update=args.fused,
    )
    planning_seconds = time.perf_counter() - begin
    row = simulation_row(plan, simulate(plan, profile, link, staging_bytes=ring_bytes(staging_bytes)))
    if args.output is not None:
        plan.save(args.output)
    return {**row, "planning_seconds": planning_seconds, "search": _search_row(statistics)}


class SearchRow(TypedDict):
    """What a planner's search did."""

    nodes: int
    complete_solutions: int
    seconds: float
    complete: bool


def _search_row(statistics: SearchStatistics | None) -> SearchRow | None:
    """None for planners that do not search."""
    if statistics is None:
        return None
    return {
        "nodes": statistics.nodes,
        "complete_solutions": statistics.complete_solutions,
        "seconds": statistics.seconds,
        "complete": statistics.complete,
    }


def print_table(result: Row) -> None:
    print_row(result)
    search = result["search"]
    if isinstance(search, dict):
        end = "complete" if search["complete"] else "cut off: the plan is the best found so far"
        text = f"Search: {search['nodes']} nodes, {search['complete_solutions']} complete solutions; {end}."
        Console().print(text, soft_wrap=True, highlight=False, markup=False)
