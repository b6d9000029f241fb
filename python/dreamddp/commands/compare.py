"""`dreamddp compare`: all planners side by side, with the limit."""

import argparse
import sys

from rich.console import Console
from rich.progress import Progress, TextColumn

from dreamddp._core import Link, Profile, parse_bytes_per_second, reject
from dreamddp.commands.compare_table import Advice, ComparisonResult, print_table
from dreamddp.commands.link_arguments import add_link_arguments, link_from, link_with_bandwidth
from dreamddp.commands.output_file import check_output
from dreamddp.commands.plan_arguments import (
    add_fused_argument,
    add_memory_arguments,
    period_from,
    staging_bytes_from,
)
from dreamddp.comparison import (
    Case,
    Choices,
    advice,
    best_case,
    cases_over,
    compare,
    default_planners,
    reference_planner,
)
from dreamddp.planner_names import check_planner
from dreamddp.simulation_row import Row, simulation_row

__all__ = ["add_arguments", "print_table", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a profile file")
    parser.add_argument("--planners", metavar="P,..", help="default: all but brute-force")
    parser.add_argument(
        "--periods", metavar="H,..", default="5,10,20", help="numbers or auto; default %(default)s"
    )
    parser.add_argument("--bandwidths", metavar="RATE,..", help="several links, in place of --bandwidth")
    parser.add_argument(
        "--html", metavar="FILE", help="write charts and timelines as one page, readable offline"
    )
    add_fused_argument(
        parser,
        "let the optimizer step each layer inside the backward; planners of gradients are as without it, and "
        "by default those that cannot are left out",
    )
    add_memory_arguments(parser)
    add_link_arguments(parser)


def run(args: argparse.Namespace) -> ComparisonResult:
    check_output("--html", args.html, args.profile)
    links = _links(args)
    chosen = _planners(args.planners)
    profile = Profile.load(args.profile)
    choices = Choices(
        planners=chosen or default_planners(profile, fused_update=args.fused),
        links=links,
        periods=[_periods(args.periods, profile, link, args.fused) for link in links],
        staging_bytes=staging_bytes_from(args),
        max_delay=args.max_delay,
        fused_update=args.fused,
    )
    cases = _compare_with_progress(profile, choices)
    reference = reference_planner(profile)
    if args.html is not None:
        from dreamddp.plotting.comparison_page import write_comparison_page

        write_comparison_page(args.html, args.profile, profile, cases, reference)
    return {
        "profile": args.profile,
        "latency_seconds": links[0].latency_seconds,
        "workers": links[0].workers,
        "in_flight": links[0].in_flight,
        "speedup_over": reference,
        "rows": [_row(case) for case in cases],
        "advice": [_advice(best_case(cases_over(link, cases), reference), reference) for link in links],
    }


def _row(case: Case) -> Row:
    return {
        **simulation_row(case.plan, case.simulation),
        "bandwidth_bytes_per_second": case.link.bandwidth_bytes_per_second,
        "speedup": case.speedup,
    }


def _advice(best: Case, reference: str) -> Advice:
    return {
        "bandwidth_bytes_per_second": best.link.bandwidth_bytes_per_second,
        "planner": best.plan.planner,
        "period": best.plan.period,
        "speedup": best.speedup,
        "text": advice(best, reference),
    }


def _items(text: str, field: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        reject(field, repr(text), "a list separated by commas, without gaps", "Remove the empty entries.")
    return list(dict.fromkeys(items))


def _planners(text: str | None) -> list[str]:
    """Empty where none are named."""
    if text is None:
        return []
    return [check_planner(name, "--planners") for name in _items(text, "--planners")]


def _links(args: argparse.Namespace) -> list[Link]:
    if args.bandwidths is None:
        return [link_from(args)]
    if args.bandwidth is not None:
        reject("--bandwidths", "--bandwidth too", "one of them", "List all rates in --bandwidths.")
    rates = [parse_bytes_per_second(item, "--bandwidths") for item in _items(args.bandwidths, "--bandwidths")]
    return [link_with_bandwidth(args, rate) for rate in dict.fromkeys(rates)]


def _periods(text: str, profile: Profile, link: Link, fused_update: bool) -> list[int]:
    items = _items(text, "--periods")
    return sorted(
        {period_from(item, profile, link, "--periods", fused_update=fused_update) for item in items}
    )


def _compare_with_progress(profile: Profile, choices: Choices) -> list[Case]:
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[what]}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("planning", total=choices.num_plans, what="")
        return compare(profile, choices, lambda what: progress.update(task, advance=1, what=what))
