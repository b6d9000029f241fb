"""`dreamddp plan`: makes a plan."""

import argparse
import time

from dreamddp._core import Profile, SearchStatistics, make_plan, planners, simulate
from dreamddp.commands.link_arguments import add_link_arguments, link_from
from dreamddp.commands.plan_arguments import (
    add_memory_arguments,
    check_planner,
    period_from,
    ring_bytes,
    staging_bytes_from,
)
from dreamddp.commands.row_table import print_row
from dreamddp.commands.rows import Row, simulation_row
from dreamddp.commands.whole_number import whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a profile file")
    summaries = "; ".join(f"{name}: {summary}" for name, summary in planners()).replace("%", "%%")
    parser.add_argument(
        "--planner", metavar="P", default="balanced", help=f"default %(default)s. One of {summaries}"
    )
    parser.add_argument("--period", metavar="H", default="auto", help="iterations, or auto (the default)")
    add_memory_arguments(parser)
    parser.add_argument(
        "--max-nodes",
        metavar="N",
        type=whole_number,
        default=10_000_000,
        help="where the search of planner dreamddp stops, with the best plan so far; 0: never; "
        "default %(default)s",
    )
    parser.add_argument(
        "--fill-bubbles",
        action="store_true",
        help="average more than the plan must, in time that costs nothing",
    )
    parser.add_argument(
        "--drift-order",
        metavar="LAYER,..",
        help="for --fill-bubbles: layers to add, the most drifting first; default: all, from the output "
        "side on",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the plan")
    add_link_arguments(parser)


def run(args: argparse.Namespace) -> Row:
    link = link_from(args)
    planner = check_planner(args.planner, "--planner")
    profile = Profile.load(args.profile)
    period = period_from(args.period, profile, link, "--period")
    staging_bytes = staging_bytes_from(args)
    search = SearchStatistics()
    begin = time.perf_counter()
    plan = make_plan(
        planner,
        profile,
        link,
        period=period,
        staging_bytes=staging_bytes,
        max_delay=args.max_delay,
        max_nodes=args.max_nodes,
        fill_bubbles=args.fill_bubbles,
        drift_order=_drift_order(args, profile),
        search=search,
    )
    planning_seconds = time.perf_counter() - begin
    row = simulation_row(plan, simulate(plan, profile, link, staging_bytes=ring_bytes(staging_bytes)))
    if args.output is not None:
        plan.save(args.output)
    return {**row, "planning_seconds": planning_seconds, "search": _search_row(search)}


def _drift_order(args: argparse.Namespace, profile: Profile) -> list[int]:
    if args.drift_order is None:
        return []
    if not args.fill_bubbles:
        raise ValueError("--drift-order: got it without --fill-bubbles; expected both.")
    numbers = {layer.name: number for number, layer in enumerate(profile.layers)}
    names = [name.strip() for name in args.drift_order.split(",")]
    unknown = [name for name in names if name not in numbers]
    if unknown:
        raise ValueError(
            f"--drift-order: got {unknown[0]!r}; expected names of layers of the profile, such as "
            f"{profile.layers[-1].name!r}."
        )
    return [numbers[name] for name in names]


def _search_row(search: SearchStatistics) -> Row | None:
    """None where the planner does not search."""
    if search.nodes == 0:
        return None
    return {
        "nodes": search.nodes,
        "complete_solutions": search.complete_solutions,
        "seconds": search.seconds,
        "is_complete": search.is_complete,
    }


def print_table(result: Row) -> None:
    print_row(result)
    search = result["search"]
    if isinstance(search, dict):
        end = "" if search["is_complete"] else "; stopped at the limit: the best plan so far"
        print(f"searched {search['nodes']:,} nodes, {search['complete_solutions']:,} complete solutions{end}")
