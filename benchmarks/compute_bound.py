"""Where compute is the bottleneck: a step with DreamDDP against one with PyTorch's DistributedDataParallel.

    python -m benchmarks.compute_bound [--blocks 10] [--steps 8]

Two ranks over an emulated link of 10 Gbit/s, on which gradients hide behind the backward. Two copies of one
model train in turn, in blocks of steps; a block ends when nothing is in flight. Prints and writes the median
ratio of the blocks' times (1 is equal, less is faster), and that of two copies with DistributedDataParallel,
which shows the noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.result_file import write_result
from dreamddp import DreamDDP
from dreamddp.emulated_link import emulated_link

WORKERS = 2
PERIOD = 4
WIDTH = 512
BATCH = 512
# Enough for DreamDDP to measure, and for DistributedDataParallel to settle its buckets.
WARM_UP_STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8, help="in a block")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spawn(measure, (options.blocks, options.steps, folder), nprocs=WORKERS)
        result = json.loads((Path(folder) / "result.json").read_text())
    print(
        f"step with DistributedDataParallel {result['ddp_seconds'] * 1e3:.1f} ms, with DreamDDP "
        f"{result['dreamddp_seconds'] * 1e3:.1f} ms, ratio {result['ratio']:.4f}, noise {result['noise']:.4f}"
    )
    print(f"written to {write_result('compute_bound', result)}")


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(8)))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def block(
    model: nn.Module, optimizer: torch.optim.Optimizer, wait: Callable[[], None]
) -> Callable[[int], float]:
    """Trains for some steps; returns the seconds of one, on the slower rank."""
    inputs = torch.randn(BATCH, WIDTH)

    def run(steps: int) -> float:
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        wait()
        seconds = torch.tensor((time.perf_counter() - begin) / steps)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return float(seconds)

    return run


def measure(rank: int, blocks: int, steps: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        emulated_link("10Gbit/s", "0.1ms"),
        init_method=f"file://{Path(folder) / 'store'}",
        rank=rank,
        world_size=WORKERS,
    )
    runs = []
    for uses_dreamddp in (False, True, False):
        model, optimizer = make()
        if uses_dreamddp:
            sync = DreamDDP(model, optimizer, period=PERIOD)
            runs.append(block(model, optimizer, sync.wait))
        else:
            runs.append(block(DistributedDataParallel(model), optimizer, lambda: None))
    for run in runs:
        run(WARM_UP_STEPS)
    seconds: list[list[float]] = [[], [], []]
    for number in range(blocks):
        for index in (0, 1, 2) if number % 2 else (2, 1, 0):
            seconds[index].append(runs[index](steps))
    ratios = [ours / ((ddp + again) / 2) for ddp, ours, again in zip(*seconds, strict=True)]
    ddp, ours, again = (statistics.median(values) for values in seconds)
    if rank == 0:
        result = {
            "ddp_seconds": ddp,
            "dreamddp_seconds": ours,
            "ratio": statistics.median(ratios),
            "noise": again / ddp,
        }
        (Path(folder) / "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
