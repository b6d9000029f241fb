"""Does an emulated link keep to its formula? All-reduces, and the steps of DistributedDataParallel.

    python -m benchmarks.emulated_link [--workers 2] [--rounds 10]

Prints and writes, for several links, the measured time over the one that the link's formula gives (1 is
perfect; compute and the wrapped Gloo make it larger).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.result_file import write_result
from dreamddp.emulated_link import emulated_link, recent_bookings

LINKS = [("100Mbit/s", "0s"), ("100Mbit/s", "1ms"), ("1Gbit/s", "0.2ms"), ("1Gbit/s", "20ms")]
SIZES = [4, 4 << 10, 1 << 20]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print(f"{'link':>20}  {'what':>24}  {'formula':>10}  {'measured':>10}  ratio")
    rows: list[dict[str, Any]] = []
    for link in LINKS:
        with tempfile.TemporaryDirectory() as folder:
            spawn(measure, (options.workers, options.rounds, link, folder), nprocs=options.workers)
            rows += json.loads((Path(folder) / "rows.json").read_text())
    print(f"written to {write_result('emulated_link', {'workers': options.workers, 'rows': rows})}")


def measure(rank: int, workers: int, rounds: int, link: tuple[str, str], folder: str) -> None:
    torch.set_num_threads(1)
    backend = emulated_link(*link)
    dist.init_process_group(
        backend, init_method=f"file://{Path(folder) / 'store'}", rank=rank, world_size=workers
    )
    rows = []
    for size in SIZES:
        tensor = torch.ones(size, dtype=torch.uint8)
        rows.append(report(rank, link, f"all-reduce of {size} B", partial(dist.all_reduce, tensor), rounds))

    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.5)
    inputs = torch.randn(1, 256)
    rows.append(report(rank, link, "DDP step, 2.1 MB", lambda: ddp(inputs).sum().backward(), rounds))
    if rank == 0:
        (Path(folder) / "rows.json").write_text(json.dumps(rows))
    dist.destroy_process_group()


def report(
    rank: int, link: tuple[str, str], name: str, action: Callable[[], object], rounds: int
) -> dict[str, Any]:
    """Times the action; the formula's time is the sum of its ops' from start to finish."""
    seconds, formula = [], []
    for _ in range(rounds + 2):
        dist.barrier()
        before = recent_bookings()[-1].finish
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
        ops = [op for op in recent_bookings() if op.ready > before]
        formula.append(sum(op.finish - op.start for op in ops) * 1e-9)
    measured, expected = statistics.median(seconds[2:]), statistics.median(formula[2:])
    if rank == 0:
        times = f"{expected * 1e3:>7.3f} ms  {measured * 1e3:>7.3f} ms  {measured / expected:.3f}"
        print(f"{', '.join(link):>20}  {name:>24}  {times}", flush=True)
    bandwidth, latency = link
    return {
        "bandwidth": bandwidth,
        "latency": latency,
        "what": name,
        "formula_seconds": expected,
        "measured_seconds": measured,
        "ratio": measured / expected,
    }


if __name__ == "__main__":
    main()
