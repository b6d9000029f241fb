"""Does a training do what the simulator says? Its timeline over the emulated link, against the simulated one.

    python -m benchmarks.timeline [--planners wfbp,local-sgd,..] [--period 5] [--periods 6]

For each planner: a model is measured, a plan is made and carried out, and the timeline of whole periods is
compared with the simulated one. Exit code 1, naming each violation, where an op does not come in the order of
the plan, begins before its launch event, or is written after its deadline event has begun.

Iteration times are compared with two simulations of the same plan, both with the slowest rank in each
layer: the prediction, with the layer times that the plan was made for, medians measured moments earlier,
against the median of whole periods; and, as a machine's speed changes, the simulation with the mean layer
times of the very iterations that are compared, against their mean. What ranks wait for each other's slower
moments is in neither; `imbalance_seconds` says how much the slowest rank of each iteration (of each period,
where some iterations average nothing) computes longer than the rank that is slowest in the mean.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch.distributed as dist
from torch import nn

from benchmarks.plan_windows import Windows
from benchmarks.result_file import write_result
from dreamddp import DreamDDP, Link, Plan, Profile, SpanKind, make_plan, simulate, simulate_timeline
from dreamddp._core import parse_bytes_per_second, parse_seconds, training_slack
from dreamddp._runtime import IterationTimes
from dreamddp.agreement import gather
from dreamddp.commands.model_arguments import read_text_for
from dreamddp.profiling import LayerTimes, measure_profile, slowest
from dreamddp.training.config import PROFILE_ITERATIONS, EmulatedLink
from dreamddp.training.data import Batches
from dreamddp.training.launcher import Message, RankContext, run_workers
from dreamddp.training.link_setup import joined
from dreamddp.training.models import MODELS, build_model
from dreamddp.training.planner_run import make_optimizer
from dreamddp.training.rows import WARMUP_STEPS, RankSteps, iteration_times, warm_steps
from dreamddp.training.worker import batches_of, use_one_thread

TOLERANCE = 0.05
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Job:
    planners: tuple[str, ...]
    period: int
    periods: int
    """That are compared."""
    model: str
    batch_size: int
    link: EmulatedLink
    text: bytes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--planners", default="wfbp,local-sgd,equal-count,dreamddp,balanced")
    parser.add_argument("--period", type=int, default=5)
    parser.add_argument("--periods", type=int, default=6, help="that are compared; at least 3")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="gpt2-tiny", choices=MODELS)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--bandwidth", default="100Mbit/s")
    parser.add_argument("--latency", default="1ms")
    options = parser.parse_args()
    if options.periods < 3:
        parser.error(f"--periods: got {options.periods}; expected at least 3")
    job = Job(
        planners=tuple(options.planners.split(",")),
        period=options.period,
        periods=options.periods,
        model=options.model,
        batch_size=options.batch_size,
        link=EmulatedLink(
            bandwidth_bytes_per_second=parse_bytes_per_second(options.bandwidth, "--bandwidth"),
            latency_seconds=parse_seconds(options.latency, "--latency"),
        ),
        text=read_text_for(options.model, None),
    )
    rows: list[dict[str, Any]] = []

    def take(rank: int, message: Message) -> None:
        if message["kind"] == "row":
            rows.append(message["row"])
            show(message["row"])

    run_workers(compare_all, job, workers=options.workers, on_message=take, stall_seconds=TIMEOUT_SECONDS)
    settings = {name: value for name, value in vars(options).items() if name != "planners"}
    print(f"written to {write_result('timeline', {'settings': settings, 'rows': rows})}")
    violations = [text for row in rows for text in row["violations"]]
    for text in violations:
        print(text, file=sys.stderr)
    return 1 if violations else 0


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['planner']:>12}: {row['iteration_seconds'] * 1e3:.0f} ms; measured over simulated "
        f"{row['over_prediction']:.3f} (times of the profile), {row['over_simulation']:.3f} (of the run), "
        f"{row['over_simulation_and_imbalance']:.3f} (and ranks' imbalance); "
        f"{row['ops']} ops, {len(row['violations'])} violations",
        flush=True,
    )


def compare_all(context: RankContext, job: Job) -> None:
    """One rank. Rank 0 emits a row for each planner."""
    use_one_thread(context)
    batches = batches_of(job.model, job.text, job.batch_size, 0)
    link = Link(
        bandwidth_bytes_per_second=job.link.bandwidth_bytes_per_second,
        latency_seconds=job.link.latency_seconds,
        workers=context.workers,
    )
    with joined(context, job.link, TIMEOUT_SECONDS) as control:
        for planner in job.planners:
            run = Run(context, job, batches, control)
            profile = measure_profile(run.model, run.optimizer, run.step, iterations=PROFILE_ITERATIONS)
            plan = make_plan(planner, profile, link, period=job.period, slack=training_slack)
            run.carry_out(plan, profile, link)
            row = run.compare(plan, profile, link)
            if context.rank == 0:
                context.emit({"kind": "row", "row": row})


class Run:
    """A model in training on this rank. The methods are collective."""

    def __init__(self, context: RankContext, job: Job, batches: Batches, control: dist.ProcessGroup) -> None:
        self.context, self.job, self.batches, self.control = context, job, batches, control
        self.model = build_model(job.model, seed=0)
        self.optimizer = make_optimizer(self.model, learning_rate=1e-3)
        self.done = 0
        self.forward_ends: dict[tuple[int, str], float] = {}

    def step(self) -> None:
        self.optimizer.zero_grad()
        batch = self.batches.draw(self.context.rank, self.done)
        MODELS[self.job.model].loss(self.model, batch).backward()
        self.optimizer.step()
        self.done += 1
        self.context.emit({"kind": "progress"})

    def carry_out(self, plan: Plan, profile: Profile, link: Link) -> None:
        """Trains, with a timeline of the periods that count and of one iteration more."""
        warmup = -(-WARMUP_STEPS // plan.period) * plan.period
        # Plans of gradients have a period of 1; they are compared for as many iterations.
        self.iterations = range(warmup, warmup + self.job.periods * self.job.period)
        assert self.iterations == warm_steps(self.iterations.stop, plan.period)
        self._watch_forward_ends(plan)
        self.sync = DreamDDP(self.model, self.optimizer, plan=plan, profile=profile, link=link)
        seconds, exposed = [], []
        dist.barrier(self.control)
        ended = time.monotonic()
        for iteration in range(self.iterations.stop + 1):
            if iteration == self.iterations.start:
                self.sync.record(len(self.iterations) + 1)
                self.sync._engine.set_sampling(True)
            if iteration == self.iterations.stop:
                self.samples = self.sync._engine.take_samples()
                assert len(self.samples) == len(self.iterations)
            self.step()
            began, ended = ended, time.monotonic()
            stats = self.sync.stats(reset=True)
            seconds.append(ended - began)
            exposed.append(stats.exposed_seconds * stats.iterations)
        self.steps = RankSteps(
            seconds=seconds[: self.iterations.stop],
            exposed_seconds=exposed[: self.iterations.stop],
            losses=[],
        )
        self.sync.finish()
        self.sync.detach()

    def _watch_forward_ends(self, plan: Plan) -> None:
        """Hooks that come before those of DreamDDP: what it launches there begins later."""
        for name, module in self.model.named_modules():
            if name in plan.layers:
                module.register_forward_hook(self._note_forward_end(name))

    def _note_forward_end(self, layer: str) -> Any:
        def note(_module: nn.Module, _inputs: Any, _output: Any) -> None:
            self.forward_ends[self.sync.iteration, layer] = time.monotonic()

        return note

    def compare(self, plan: Plan, profile: Profile, link: Link) -> dict[str, Any]:
        """The row of this plan."""
        windows = Windows.of(plan, self.sync.timeline(), self.forward_ends, self.iterations)
        violations = windows.order_violations(simulate_timeline(plan, profile, link))
        violations += windows.window_violations()
        named = [f"{plan.planner}, rank {self.context.rank}: {text}" for text in violations]
        times = gather(mean_times(self.samples), self.control, "comparing timelines")
        of_the_run = simulate(plan, slowest(profile, times), link)
        computed = gather([compute_seconds(s) for s in self.samples], self.control, "comparing timelines")
        imbalance = imbalance_seconds(computed, plan)
        predicted = simulate(plan, profile, link)
        measured = iteration_times(gather(self.steps, self.control, "comparing timelines"), plan.period)
        all_violations = gather(named, self.control, "comparing timelines")
        over_simulation = measured.mean_seconds / of_the_run.iteration_seconds
        return {
            "planner": plan.planner,
            "period": plan.period,
            "iteration_seconds": measured.median_seconds,
            "iteration_mean_seconds": measured.mean_seconds,
            "exposed_seconds": measured.exposed_seconds,
            "predicted_seconds": predicted.iteration_seconds,
            "predicted_compute_seconds": predicted.compute_seconds,
            "simulated_seconds": of_the_run.iteration_seconds,
            "simulated_compute_seconds": of_the_run.compute_seconds,
            "simulated_exposed_seconds": of_the_run.exposed_seconds,
            "link_seconds": predicted.link_seconds,
            "imbalance_seconds": imbalance,
            "over_prediction": measured.median_seconds / predicted.iteration_seconds,
            "over_simulation": over_simulation,
            "over_simulation_and_imbalance": measured.mean_seconds
            / (of_the_run.iteration_seconds + imbalance),
            "within_tolerance": abs(over_simulation - 1) <= TOLERANCE,
            "ops": len(windows.links),
            "waits": sum(span.kind is SpanKind.wait for span in windows.compute),
            "violations": [text for texts in all_violations for text in texts],
        }


def mean_times(samples: Sequence[IterationTimes]) -> LayerTimes:
    """As median_times() of a profile, with means."""
    forward = [fmean(values) for values in zip(*(s.forward_seconds for s in samples), strict=True)]
    backward = [fmean(values) for values in zip(*(s.backward_seconds for s in samples), strict=True)]
    forward[0] += fmean(s.loop_before_seconds for s in samples)
    backward[0] += fmean(s.loop_after_seconds for s in samples)
    return LayerTimes(forward, backward, fmean(s.step_seconds for s in samples))


def compute_seconds(times: IterationTimes) -> float:
    layers = sum(times.forward_seconds) + sum(times.backward_seconds)
    return layers + times.step_seconds + times.loop_before_seconds + times.loop_after_seconds


def imbalance_seconds(ranks: Sequence[Sequence[float]], plan: Plan) -> float:
    """How much the slowest rank of each moment computes longer than the rank that is slowest in the mean."""
    size = 1 if len({op.launch.iteration for op in plan.ops}) == plan.period else plan.period
    parts = [[fmean(rank[i : i + size]) for i in range(0, len(rank), size)] for rank in ranks]
    return fmean(map(max, zip(*parts, strict=True))) - max(map(fmean, parts))


if __name__ == "__main__":
    sys.exit(main())
