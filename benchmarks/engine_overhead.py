"""What the engine adds to a step when nothing is due, and how much memory it needs.

    python -m benchmarks.engine_overhead [--pairs 200]

Overhead: two copies of one model train in turn, step by step, in one process: a plain loop and one with
DreamDDP attached whose plan has no op due. The ratio of their medians is printed; two plain loops compared in
the same way show the noise. Memory: how much the resident memory of a process grows when a model of 100 MB is
averaged.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from benchmarks.result_file import write_result
from dreamddp import DreamDDP, Event, EventKind, Link, Op, Plan, Segment

STAGING_BYTES = 8 << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result"
        spawn(measure_overhead, (options.pairs, str(path)), nprocs=1)
        overhead = torch.load(path)
        # Freed buffers go back to the system at once; else glibc keeps some per thread, and the measurement
        # shows that.
        os.environ["MALLOC_ARENA_MAX"] = "1"
        os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
        spawn(measure_memory, (2, str(path)), nprocs=2)
        memory = torch.load(path)
    for name, row in overhead.items():
        print(
            f"{name:>24}: step {row['plain_seconds'] * 1e3:.2f} ms, "
            f"ratio {row['ratio']:.4f}, noise {row['noise']:.4f}"
        )
    print(
        f"memory: {memory['model_bytes'] / 1e6:.0f} MB of parameters, "
        f"staging {STAGING_BYTES / 2**20:.0f} MiB, grew by {memory['grown_bytes'] / 2**20:.1f} MiB"
    )
    print(f"written to {write_result('engine_overhead', {'overhead': overhead, 'memory': memory})}")


def gpt() -> tuple[nn.Module, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=128, n_embd=320, n_layer=8, n_head=8))
    return model, torch.randint(0, 256, (2, 128))


def many_small() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(64, 64) for _ in range(250)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight)  # else gradients fade to denormal numbers, which take long
    return nn.Sequential(*layers), torch.randn(32, 64)


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    output = model(batch, labels=batch).loss if batch.dtype == torch.long else model(batch).square().mean()
    assert isinstance(output, torch.Tensor)
    return output


def stepper(make: Callable[[], tuple[nn.Module, torch.Tensor]], attached: bool) -> Callable[[], float]:
    torch.manual_seed(0)
    model, batch = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    if attached:
        DreamDDP(model, optimizer, period=1_000_000, planner="local-sgd", link=Link())

    def step() -> float:
        begin = time.perf_counter()
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - begin

    return step


def measure_overhead(rank: int, pairs: int, path: str) -> None:
    join(rank, 1, path)
    result = {}
    for name, make in (("GPT-2, 10 M parameters", gpt), ("500 small parameters", many_small)):
        steppers = [stepper(make, False), stepper(make, True), stepper(make, False)]
        for step in steppers * 5:
            step()
        seconds: list[list[float]] = [[], [], []]
        for pair in range(pairs):
            for index in (0, 1, 2) if pair % 2 else (2, 1, 0):
                seconds[index].append(steppers[index]())
        plain, with_engine, again = (statistics.median(values) for values in seconds)
        ratios = [b / ((a + c) / 2) for a, b, c in zip(*seconds, strict=True)]
        result[name] = {
            "plain_seconds": plain,
            "attached_seconds": with_engine,
            "ratio": statistics.median(ratios),
            "noise": again / plain,
        }
    torch.save(result, path)


def measure_memory(rank: int, workers: int, path: str) -> None:
    join(rank, workers, path)
    model = nn.Sequential(*(nn.Linear(1000, 1000, bias=False) for _ in range(25)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    layers = [str(i) for i in range(25)]
    plan = Plan(
        planner="by hand",
        period=1,
        layers=layers,
        ops=[
            Op(
                [Segment(i) for i in range(25)],
                launch=Event(0, EventKind.after_backward, 0),
                deadline=Event(0, EventKind.before_step),
            )
        ],
    )
    batch = torch.randn(4, 1000)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()

    # What a plain step needs is there before, and what Gloo needs to reduce two buffers of half the ring's
    # size at once, without the buffers.
    for _ in range(3):
        step()
    buffers = [torch.zeros(STAGING_BYTES // 8) for _ in range(2)]
    for work in [dist.all_reduce(buffer, async_op=True) for buffer in buffers]:
        work.wait()
    del buffers
    import dreamddp.engine  # noqa: F401

    before = resident_bytes("VmHWM")
    DreamDDP(model, optimizer, plan=plan, staging_bytes=STAGING_BYTES)
    for _ in range(10):
        step()
    grown = resident_bytes("VmHWM") - before
    if rank == 0:
        torch.save(
            {"model_bytes": 25 * 4_000_000, "staging_bytes": STAGING_BYTES, "grown_bytes": grown}, path
        )


def join(rank: int, workers: int, path: str) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{path}-store-{workers}", rank=rank, world_size=workers
    )


def resident_bytes(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
