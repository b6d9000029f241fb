"""Does an emulated link keep to its formula? All-reduces, and the steps of DistributedDataParallel.

    python -m benchmarks.emulated_link [--workers 2] [--rounds 10]

Prints, for several links, the measured time over the one that the link's formula gives (1 is perfect; compute
and the wrapped Gloo make it larger).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

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
    for link in LINKS:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(measure, (options.workers, options.rounds, link, folder), nprocs=options.workers)


def measure(rank: int, workers: int, rounds: int, link: tuple[str, str], folder: str) -> None:
    torch.set_num_threads(1)
    backend = emulated_link(*link)
    dist.init_process_group(
        backend, init_method=f"file://{Path(folder) / 'store'}", rank=rank, world_size=workers
    )
    for size in SIZES:
        tensor = torch.ones(size, dtype=torch.uint8)
        report(rank, link, f"all-reduce of {size} B", lambda t=tensor: dist.all_reduce(t), rounds)

    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.5)
    inputs = torch.randn(1, 256)
    report(rank, link, "DDP step, 2.1 MB", lambda: ddp(inputs).sum().backward(), rounds)
    dist.destroy_process_group()


def report(rank: int, link: tuple[str, str], name: str, action: Callable[[], object], rounds: int) -> None:
    """Times the action; the formula's time is that from its first op's ready to its last one's finish."""
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


if __name__ == "__main__":
    main()
