"""Ranks over an emulated link."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from dreamddp.emulated_link import emulated_link, recent_bookings

GIGABYTE_PER_SECOND = 1e9
"""A byte takes a nanosecond."""


@contextmanager
def emulated_ranks(
    rank: int,
    world_size: int,
    folder: Path,
    *,
    bandwidth: float = GIGABYTE_PER_SECOND,
    latency: float = 0.0,
    in_flight: int = 1,
    jitter: float = 0.0,
    timeout_seconds: float = 30.0,
) -> Iterator[None]:
    """The default process group exists inside and runs over an emulated link."""
    torch.set_num_threads(1)
    backend = emulated_link(bandwidth, latency, in_flight=in_flight, jitter=jitter, seed=5)
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_seconds),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


class Booked(NamedTuple):
    """A collective on the link; times in nanoseconds."""

    collective: str
    num_bytes: int
    workers: int
    ready: int
    jitter: int
    start: int
    transfer: int
    finish: int


def booked() -> list[Booked]:
    return [
        Booked(b.collective, b.num_bytes, b.workers, b.ready, b.jitter, b.start, b.transfer, b.finish)
        for b in recent_bookings()
    ]


def expected_schedule(ops: list[Booked], latency: int, in_flight: int) -> list[tuple[int, int]]:
    """Start and finish of each op by the formula of design section 4."""
    schedule: list[tuple[int, int]] = []
    for i, op in enumerate(ops):
        start = op.ready
        if i >= 1:
            start = max(start, schedule[i - 1][0] + ops[i - 1].transfer)
        if i >= in_flight:
            start = max(start, schedule[i - in_flight][1])
        schedule.append((start, start + op.transfer + latency + op.jitter))
    return schedule
