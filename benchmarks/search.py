"""The published search: how many nodes it visits, what its prunings save, and how good its plans are.

    python -m benchmarks.search [FOLDER]

Nodes are counted on random profiles of L layers whose link takes half as long per iteration as the compute,
where the search branches most. FOLDER holds published layer times, one folder per run with `backward.json`
and `sync.json`; on those, plans are compared with the lower bound. Node counts do not depend on the machine.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_file import write_result
from dreamddp import (
    Layer,
    Link,
    Profile,
    SearchOptions,
    SearchStatistics,
    fill_bubbles,
    make_plan,
    make_plan_and_report,
    simulate,
)
from dreamddp._core import import_public_profile, read_text_file

PERIODS = (5, 10, 20)
SIZES = (10, 20, 50, 100, 200, 500, 1000)
LONG_PERIODS = (2, 5, 10, 15, 20, 25, 30)
MAX_NODES = 200_000_000
PRUNINGS = ("at_least_one", "optimal_hiding", "delayed_overflow")
TIMED = ("asc-wfbp", "equal-count", "dreamddp", "sequential", "balanced")
PLANNERS = ("dreamddp", "equal-count", "sequential", "balanced")
GRADIENT_PLANNERS = ("ssgd", "wfbp", "asc-wfbp")
LATENCIES = (0.0, 2e-4)
LINK_SHARE = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="published layer times")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "max_nodes": MAX_NODES,
        "link_share": LINK_SHARE,
        "nodes": count_nodes(),
        "prunings": count_nodes_without_prunings(),
        "seconds": measure_seconds(),
    }
    if options.folder is not None:
        result["gaps"] = measure_gaps(options.folder)
        result["gradients"] = measure_gradients(options.folder)
    print(f"written to {write_result('search', result)}")


def count_nodes() -> list[dict[str, Any]]:
    rows = []
    print(f"{'layers':>8} " + " ".join(f"{f'H = {period}':>12}" for period in LONG_PERIODS))
    for num_layers in SIZES:
        line = []
        for period in LONG_PERIODS:
            statistics = search(num_layers, period, SearchOptions(max_nodes=MAX_NODES))
            rows.append({"layers": num_layers, "period": period, **as_row(statistics)})
            line.append(nodes_text(statistics))
        print(f"{num_layers:>8} " + " ".join(f"{text:>12}" for text in line))
    return rows


def count_nodes_without_prunings() -> list[dict[str, Any]]:
    rows = []
    for num_layers, period in ((10, 5), (20, 5), (50, 5), (20, 10)):
        for left_out in ([], *([name] for name in PRUNINGS), list(PRUNINGS)):
            options = SearchOptions(max_nodes=MAX_NODES, **dict.fromkeys(left_out, False))
            statistics = search(num_layers, period, options)
            rows.append({"layers": num_layers, "period": period, "without": left_out, **as_row(statistics)})
            what = "all prunings" if not left_out else "without " + ", ".join(left_out)
            print(f"{num_layers} layers, H = {period}, {what}: {nodes_text(statistics)} nodes")
    return rows


def measure_seconds() -> list[dict[str, Any]]:
    """Planning at period 20, with the default limit of the search; bubbles are those of local-sgd."""
    rows = []
    for num_layers in (100, 1000, 10_000):
        profile = random_profile(num_layers, 20)
        seconds = {}
        for planner in TIMED:
            begin = time.perf_counter()
            make_plan(planner, profile, Link(), period=20)
            seconds[planner] = time.perf_counter() - begin
        plan = make_plan("local-sgd", profile, Link(), period=20)
        begin = time.perf_counter()
        fill_bubbles(plan, profile, Link())
        seconds["bubbles"] = time.perf_counter() - begin
        rows.append({"layers": num_layers, "period": 20, "seconds": seconds})
        print(
            f"{num_layers} layers: " + ", ".join(f"{name} {value:.3g} s" for name, value in seconds.items())
        )
    return rows


def nodes_text(statistics: SearchStatistics) -> str:
    return f"{statistics.nodes}" if statistics.complete else f"> {MAX_NODES}"


def search(num_layers: int, period: int, options: SearchOptions) -> SearchStatistics:
    profile = random_profile(num_layers, period)
    _, statistics = make_plan_and_report("dreamddp", profile, Link(), period=period, search=options)
    assert statistics is not None
    return statistics


def random_profile(num_layers: int, period: int) -> Profile:
    numbers = random.Random(num_layers)
    backwards = [numbers.uniform(0.5, 1.5) for _ in range(num_layers)]
    transfers = [numbers.uniform(0.5, 1.5) for _ in range(num_layers)]
    scale = LINK_SHARE * period * 1.5 * sum(backwards) / sum(transfers)
    return Profile(
        [
            Layer(
                f"l{i}",
                forward_seconds=backward / 2,
                backward_seconds=backward,
                transfer_seconds=scale * transfer,
            )
            for i, (backward, transfer) in enumerate(zip(backwards, transfers, strict=True))
        ]
    )


def measure_gaps(folder: Path) -> list[dict[str, Any]]:
    rows = []
    profiles = {path.name: read_profile(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    for latency in LATENCIES:
        link = Link(latency_seconds=latency)
        print(f"{latency * 1e3:g} ms of latency")
        print(f"{'':>28} {'H':>3} " + " ".join(f"{planner:>12}" for planner in PLANNERS))
        for name, profile in profiles.items():
            for period in PERIODS:
                row = compare(profile, link, period)
                rows.append({"run": name, "latency_seconds": latency, "period": period, **row})
                gaps = " ".join(f"{row['gaps'][planner]:>12.1%}" for planner in PLANNERS)
                print(f"{name:>28} {period:>3} {gaps}  {row['search']['nodes']} nodes")
        for planner in PLANNERS:
            for period in PERIODS:
                values = [
                    row["gaps"][planner]
                    for row in rows
                    if row["period"] == period and row["latency_seconds"] == latency
                ]
                print(f"{planner}, H = {period}: mean {mean(values):.1%}, largest {max(values):.1%}")
    return rows


def measure_gradients(folder: Path) -> list[dict[str, Any]]:
    """Iteration times of planners of gradients."""
    rows = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        profile = read_profile(path)
        for latency, in_flight in ((0.0, 1), (2e-4, 1), (2e-4, 4)):
            link = Link(latency_seconds=latency, in_flight=in_flight)
            seconds = {
                planner: simulate(make_plan(planner, profile, link), profile, link).iteration_seconds
                for planner in GRADIENT_PLANNERS
            }
            rows.append(
                {"run": path.name, "latency_seconds": latency, "in_flight": in_flight, "seconds": seconds}
            )
            text = ", ".join(f"{name} {value:.4g} s" for name, value in seconds.items())
            print(f"{path.name}, latency {latency * 1e3:g} ms, {in_flight} in flight: {text}")
    return rows


def read_profile(run: Path) -> Profile:
    texts = [read_text_file(run / name) for name in ("backward.json", "sync.json")]
    return import_public_profile(*texts, nan_as_zero=True)[0]


def compare(profile: Profile, link: Link, period: int) -> dict[str, Any]:
    gaps = {}
    for planner in PLANNERS:
        plan = make_plan(planner, profile, link, period=period)
        gaps[planner] = simulate(plan, profile, link).gap
    _, statistics = make_plan_and_report("dreamddp", profile, link, period=period)
    assert statistics is not None
    return {"gaps": gaps, "search": as_row(statistics)}


def as_row(statistics: SearchStatistics) -> dict[str, Any]:
    return {
        "nodes": statistics.nodes,
        "complete_solutions": statistics.complete_solutions,
        "seconds": statistics.seconds,
        "complete": statistics.complete,
    }


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
