"""DreamDDP and others over a link that is really slow: network namespaces joined by shaped veth pairs.

    python -m benchmarks.slow_link [--workers 2] [--bandwidth 100Mbit/s] [--latency none] [--picture FILE]

As root, with Debian's iproute2. Trains a GPT-2 with each method in turn, from the same weights on the same
batches, with the same period H: without communication, with PyTorch's DistributedDataParallel, with the Local
SGD of DreamDDP, accelerate and torchft, with torchft's DiLoCo, and with DreamDDP's balanced plan. accelerate
and torchft are optional (pip install accelerate torchft): one that is missing is named in the table.

Times are of the slowest rank, over whole periods behind a warm-up in which DreamDDP measures model and link.
Bytes are what left a worker's interface, by its counter, headers and control messages included. What should
be reached is the limit max(compute, link): the iteration of the run without communication, and the time for
which the model, once an iteration (DDP) or once in H, takes the link, whose bandwidth is measured first.
The first method is run again at the end: where its time has changed, by the factor `drift`, so has the speed
of the machine, and rows cannot be compared.

Exit codes: 1 where a method failed, 2 where links cannot be set up.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.namespaces import INTERFACE, CannotSetUp, Endpoint, enter, sent_bytes, shaped_links
from benchmarks.result_file import write_result
from benchmarks.rivals import METHODS, Loop, Place
from benchmarks.slow_link_table import draw, print_table
from dreamddp import Link
from dreamddp._core import format_seconds, parse_bytes_per_second, parse_seconds
from dreamddp.commands.model_arguments import read_text_for
from dreamddp.engine import DEFAULT_PROFILE_ITERATIONS
from dreamddp.profiling import measure_link
from dreamddp.training.launcher import Message, RankContext, WorkerFailed, run_workers
from dreamddp.training.models import MODELS, build_model
from dreamddp.training.planner_run import make_optimizer, rank_spread
from dreamddp.training.rows import WARMUP_STEPS, RankSteps, iteration_times, smoothed_loss, step_records
from dreamddp.training.worker import batches_of

MASTER_PORT = 29600
TIMEOUT_SECONDS = 100.0


@dataclass(frozen=True, kw_only=True)
class Job:
    method: str
    endpoints: tuple[Endpoint, ...]
    period: int
    periods: int
    """That count."""
    model: str
    batch_size: int
    text: bytes

    @property
    def measuring(self) -> int:
        """The first steps, in which DreamDDP measures."""
        return -(-DEFAULT_PROFILE_ITERATIONS // self.period) * self.period

    @property
    def counted(self) -> range:
        """The steps that count, as in iteration_times() of those after the measuring."""
        first = self.measuring + -(-WARMUP_STEPS // self.period) * self.period
        return range(first, first + self.periods * self.period)


def main() -> int:
    options = parse_arguments()
    bandwidth = parse_bytes_per_second(options.bandwidth, "--bandwidth")
    latency = None if options.latency == "none" else parse_seconds(options.latency, "--latency")
    batch_size = options.batch_size or (4 if options.workers == 2 else 2)
    text = read_text_for(options.model, None)
    link: dict[str, Any] = {}
    methods = options.methods.split(",")
    try:
        with shaped_links(options.workers, bandwidth, latency) as endpoints:
            job = Job(
                method=methods[0],
                endpoints=tuple(endpoints),
                period=options.period,
                periods=options.periods,
                model=options.model,
                batch_size=batch_size,
                text=text,
            )
            rows = [measure(replace(job, method=method), link) for method in methods]
            again = measure(job, {})
    except CannotSetUp as error:
        print(f"slow_link: {error}", file=sys.stderr)
        return 2
    add_ratios(rows, options.period, link)
    settings = {
        "workers": options.workers,
        "bandwidth": options.bandwidth,
        "latency": options.latency,
        "period": options.period,
        "periods_counted": options.periods,
        "model": options.model,
        "batch_size": batch_size,
    }
    result = {"settings": settings, "measured_link": link, "rows": rows}
    if "iteration_seconds" in again and "iteration_seconds" in rows[0]:
        result["drift"] = again["iteration_seconds"] / rows[0]["iteration_seconds"]
    print_table(result)
    print(f"written to {write_result(f'slow_link_{options.workers}', result)}")
    if options.picture is not None:
        draw(options.picture)
    return 1 if any("failed" in row for row in rows) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, choices=range(2, 9))
    parser.add_argument("--bandwidth", default="100Mbit/s")
    parser.add_argument("--latency", default="none", help="such as 1ms; the kernel must have netem")
    parser.add_argument("--period", type=int, default=5, help="H")
    parser.add_argument("--periods", type=int, default=6, help="that count")
    parser.add_argument("--model", default="gpt2-tiny", choices=MODELS)
    parser.add_argument("--batch-size", type=int, help="default: 4, and 2 for more than 2 workers")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--picture", type=Path, help="drawn from all result files of this benchmark")
    options = parser.parse_args()
    unknown = [name for name in options.methods.split(",") if name not in METHODS]
    if unknown:
        parser.error(f"--methods: {', '.join(unknown)}; expected of {', '.join(METHODS)}")
    return options


def measure(job: Job, link: dict[str, Any]) -> dict[str, Any]:
    """The row of one method. Fills the link in where it was measured."""
    method = METHODS[job.method]
    row: dict[str, Any] = {"method": job.method, "title": method.title, **method.versions()}
    missing = [name for name in method.packages if importlib.util.find_spec(name) is None]
    if missing:
        return row | {"missing": missing}
    results: dict[int, Message] = {}

    def take(rank: int, message: Message) -> None:
        if message["kind"] == "result":
            results[rank] = message
        elif message["kind"] == "link":
            link.update(message["link"])
        elif rank == 0 and message["done"] % 10 == 0:
            print(
                f"{method.title}: step {message['done']} of {job.counted.stop}, "
                f"{format_seconds(message['seconds'])} in the mean of the last 10",
                file=sys.stderr,
            )

    try:
        run_workers(
            train, job, workers=len(job.endpoints), on_message=take, stall_seconds=2 * TIMEOUT_SECONDS
        )
    except WorkerFailed as error:
        print(f"{method.title}: {error}\n{error.details}", file=sys.stderr)
        return row | {"failed": str(error)}
    return row | row_of(job, [results[rank] for rank in sorted(results)])


def row_of(job: Job, results: list[Message]) -> dict[str, Any]:
    def steps_of(result: Message, first: int) -> RankSteps:
        seconds = result["seconds"][first:]
        return RankSteps(
            seconds=seconds, exposed_seconds=[0.0] * len(seconds), losses=result["losses"][first:]
        )

    # Of what comes after the measuring, iteration_times() leaves the warm-up out.
    times = iteration_times([steps_of(result, job.measuring) for result in results], job.period)
    steps = step_records(job.method, [steps_of(result, 0) for result in results])
    return {
        "iteration_seconds": times.median_seconds,
        "iteration_mean_seconds": times.mean_seconds,
        "bytes_per_iteration": statistics.fmean(result["bytes_per_iteration"] for result in results),
        "model_bytes": results[0]["model_bytes"],
        "step_seconds": [round(step["seconds"], 6) for step in steps[job.counted.start :]],
        "first_loss": steps[0]["loss"],
        "loss_at_equal_steps": smoothed_loss(steps, steps[-1]["elapsed_seconds"]),
        "rank_spread": results[0]["rank_spread"],
        **({"own_account": results[0]["counted"]} if results[0]["counted"] else {}),
    }


def add_ratios(rows: list[dict[str, Any]], period: int, link: dict[str, Any]) -> None:
    """What needs several rows. Raises RuntimeError where they did not begin alike."""
    measured = [row for row in rows if "iteration_seconds" in row]
    if len({row["first_loss"] for row in measured}) > 1:
        raise RuntimeError(f"first losses differ: {[(row['method'], row['first_loss']) for row in measured]}")
    seconds = {row["method"]: row["iteration_seconds"] for row in measured}
    for row in measured:
        row["predicted_seconds"] = row.get("own_account", {}).get("predicted_seconds")
        if "alone" not in seconds:
            continue
        share = {"nothing": 0.0, "every iteration": 1.0, "every period": 1 / period}
        workers = link["workers"]
        carried = 2 * (workers - 1) / workers * row["model_bytes"] * share[METHODS[row["method"]].sends]
        row["compute_alone_seconds"] = seconds["alone"]
        row["link_seconds"] = carried / link["bandwidth_bytes_per_second"]
        row["limit_seconds"] = max(seconds["alone"], row["link_seconds"])
        row["over_limit"] = row["iteration_seconds"] / row["limit_seconds"]
        if "ddp" in seconds:
            row["over_ddp"] = row["iteration_seconds"] / seconds["ddp"]


def train(context: RankContext, job: Job) -> None:
    """One rank: emits its `result`, and rank 0 the `link` of a run without communication."""
    endpoint = job.endpoints[context.rank]
    enter(endpoint)
    os.environ |= {
        "RANK": str(context.rank),
        "WORLD_SIZE": str(context.workers),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": job.endpoints[0].address,
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "OMP_NUM_THREADS": "1",
        "RUST_LOG": "warn",  # torchft's; else each average is several lines
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_SECONDS))
    group = dist.group.WORLD
    assert group is not None
    model = build_model(job.model, seed=0)
    optimizer = make_optimizer(model, learning_rate=1e-3)
    place = Place(
        rank=context.rank,
        workers=context.workers,
        period=job.period,
        addresses=tuple(endpoint.address for endpoint in job.endpoints),
        timeout_seconds=TIMEOUT_SECONDS,
    )
    with METHODS[job.method].attach(model, optimizer, place) as loop:
        result = run_loop(context, job, loop)
        loop.finish()
    result["rank_spread"] = rank_spread(model, group)
    result["model_bytes"] = sum(p.numel() * p.element_size() for p in model.parameters())
    if job.method == "alone":
        context.emit({"kind": "link", "link": fields_of(measure_link(group))})
    context.emit({"kind": "result", **result})
    dist.barrier()
    dist.destroy_process_group()


def run_loop(context: RankContext, job: Job, loop: Loop) -> dict[str, Any]:
    batches = batches_of(job.model, job.text, job.batch_size, 0)
    loss_of = MODELS[job.model].loss
    seconds: list[float] = []
    losses: list[float] = []
    sent_before = 0
    dist.barrier()
    step_ended = time.monotonic()
    for step in range(job.counted.stop):
        if step == job.counted.start:
            sent_before = sent_bytes()
            loop.begin_counting()
        loop.optimizer.zero_grad()
        loss = loss_of(loop.model, batches.draw(context.rank, step))
        loss.backward()
        loop.optimizer.step()
        loop.after_step()
        losses.append(float(loss.detach()))
        step_began, step_ended = step_ended, time.monotonic()
        seconds.append(step_ended - step_began)
        mean = statistics.fmean(seconds[-10:])
        context.emit({"kind": "progress", "done": step + 1, "seconds": mean})
    return {
        "bytes_per_iteration": (sent_bytes() - sent_before) / len(job.counted),
        "counted": loop.counted(),
        "seconds": seconds,
        "losses": losses,
    }


def fields_of(link: Link) -> dict[str, Any]:
    return {
        "bandwidth_bytes_per_second": link.bandwidth_bytes_per_second,
        "latency_seconds": link.latency_seconds,
        "workers": link.workers,
    }


if __name__ == "__main__":
    sys.exit(main())
