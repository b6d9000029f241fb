"""How close `balanced` comes to the lower bound on published profiles, and what planning costs.

    python -m benchmarks.planning FOLDER

FOLDER holds one folder per run with `backward.json` and `sync.json`. Forward times are half of backward
times. Sizes, which decide what memory can hold, are estimated from the link times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.result_file import write_result
from dreamddp import Layer, Link, Plan, Profile, make_plan, simulate
from dreamddp._core import (
    OpMode,
    bound_seconds,
    import_public_profile,
    layer_transfer_seconds,
    training_slack,
)

PERIODS = (5, 10, 20)
GIB = 1 << 30
LATENCY_SECONDS = 0.2e-3
WIDE_AREA = Link(latency_seconds=50e-3, in_flight=4)
WIDE_AREA_RUNS = ("gpt2-16w-1gbit", "llama2-124m-16w-1gbit", "llama2-124m-16w-10gbit")
WIDE_AREA_PERIODS = (5, 10, 20, 30, 40, 60, 80, 100)
NUM_LAYERS = (100, 392, 1000, 3000, 10_000)
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="published runs")
    folder: Path = parser.parse_args().folder
    profiles = {run.name: load(run) for run in sorted(folder.iterdir()) if run.is_dir()}
    result: dict[str, Any] = {
        "zero_latency": summary(in_place(profiles, 0.0)),
        "latency_0.2ms": summary(in_place(profiles, LATENCY_SECONDS)),
        "zero_latency_slack": summary(in_place(profiles, 0.0, training_slack)),
        "latency_0.2ms_slack": summary(in_place(profiles, LATENCY_SECONDS, training_slack)),
        "held_1gib": summary(held(profiles)),
        "wide_area": list(wide_area(profiles)),
        "planning": list(planning()),
    }
    print(write_result("planning", result))


def load(run: Path) -> Profile:
    """Sizes by a link of 10 Gbit/s and 16 workers, or 1 Gbit/s where the run's name says so."""
    profile, _ = import_public_profile(
        (run / "backward.json").read_text(),
        (run / "sync.json").read_text(),
        nan_as_zero=True,
        assumed_bandwidth_bytes_per_second=125e6 if "-1gbit" in run.name else 1.25e9,
        workers=16,
    )
    return profile


def in_place(
    profiles: dict[str, Profile], latency_seconds: float, slack: float = 0.0
) -> Iterable[dict[str, Any]]:
    """`over_bound`: over the bound of the simulator, where a latency counts as often as no plan can avoid it;
    `over_published_bound`: over the bound of design section 5 plus one latency in every iteration."""
    link = Link(latency_seconds=latency_seconds)
    for name, profile in profiles.items():
        for period in PERIODS:
            plan = make_plan("balanced", profile, link, period=period, slack=slack)
            simulation = simulate(plan, profile, link)
            published = (
                bound_seconds(profile, layer_transfer_seconds(profile, link), period) + latency_seconds
            )
            yield {
                "profile": name,
                "period": period,
                "over_bound": simulation.iteration_seconds / simulation.bound_seconds,
                "over_published_bound": simulation.iteration_seconds / published,
            }


def held(profiles: dict[str, Profile]) -> Iterable[dict[str, Any]]:
    link = Link()
    for name, profile in profiles.items():
        for period in PERIODS:
            plan = make_plan("balanced", profile, link, period=period, staging_bytes=GIB)
            simulation = simulate(plan, profile, link)
            bound = bound_seconds(profile, layer_transfer_seconds(profile, link), period, mode=OpMode.held)
            yield {
                "profile": name,
                "period": period,
                "over_bound": simulation.iteration_seconds / bound,
                "staging_bytes": simulation.staging_bytes,
            }


def wide_area(profiles: dict[str, Profile]) -> Iterable[dict[str, Any]]:
    """The shortest of some periods at which the link is no slower than compute."""
    for name in WIDE_AREA_RUNS:
        profile = profiles[name]
        for period in WIDE_AREA_PERIODS:
            plan = make_plan("balanced", profile, WIDE_AREA, period=period, staging_bytes=GIB, max_delay=1)
            simulation = simulate(plan, profile, WIDE_AREA)
            if simulation.link_seconds <= simulation.compute_seconds:
                yield {
                    "profile": name,
                    "period": period,
                    "over_limit": simulation.iteration_seconds / simulation.limit_seconds,
                    "staging_bytes": simulation.staging_bytes,
                }
                break


def planning() -> Iterable[dict[str, Any]]:
    """Best of some runs: what the machine does beside it only adds."""
    for num_layers in NUM_LAYERS:
        profile = model_of(num_layers)
        for latency_seconds in (0.0, LATENCY_SECONDS):
            for period in PERIODS:
                seconds, plan = time_planning(profile, Link(latency_seconds=latency_seconds), period)
                yield {
                    "layers": num_layers,
                    "period": period,
                    "latency_seconds": latency_seconds,
                    "planning_seconds": seconds,
                    "ops": len(plan.ops),
                }


def model_of(num_layers: int) -> Profile:
    """Blocks of six layers of unlike size, as transformers have, whose link takes seven times as long
    as their compute."""
    weights = (0.1, 3.0, 1.0, 0.1, 4.0, 4.0)
    layers = []
    for number in range(num_layers):
        weight = weights[number % len(weights)] * (1 + 0.001 * (number % 7))
        layers.append(
            Layer(
                f"layer{number}",
                forward_seconds=0.5e-3 * weight,
                backward_seconds=1e-3 * weight,
                num_bytes=int(1e6 * weight),
                transfer_seconds=10e-3 * weight,
            )
        )
    return Profile(layers, step_seconds=1e-3)


def time_planning(profile: Profile, link: Link, period: int) -> tuple[float, Plan]:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        plan = make_plan("balanced", profile, link, period=period)
        times.append(time.perf_counter() - begin)
    return min(times), plan


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    listed = list(rows)
    ratios = [row[key] for row in listed for key in ("over_published_bound",) if key in row]
    over_bound = [row["over_bound"] for row in listed]
    result: dict[str, Any] = {"mean": statistics.mean(over_bound), "largest": max(over_bound)}
    if ratios:
        result |= {
            "mean_over_published_bound": statistics.mean(ratios),
            "largest_over_published_bound": max(ratios),
        }
    return result | {"rows": listed}


if __name__ == "__main__":
    main()
