"""Whether the ranks of a machine run more compute threads than it has cores: they then slow each other."""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class ComputeThreads:
    """What one rank may use."""

    machine: str
    host: str
    threads: int
    cores: tuple[int, ...]


def of_this_rank() -> ComputeThreads:
    host = socket.gethostname()
    # Containers of one machine may have host names of their own, and those of several the same.
    machine = BOOT_ID.read_text().strip() if BOOT_ID.exists() else host
    return ComputeThreads(machine, host, torch.get_num_threads(), tuple(sorted(os.sched_getaffinity(0))))


def crowded_machines(ranks: Sequence[ComputeThreads]) -> list[str]:
    """A line for each machine whose ranks run more compute threads than they may use cores, with what to
    change."""
    machines: dict[str, list[ComputeThreads]] = defaultdict(list)
    for rank in ranks:
        machines[rank.machine].append(rank)
    lines = []
    for here in machines.values():
        threads = sum(rank.threads for rank in here)
        cores = len({core for rank in here for core in rank.cores})
        if len(here) == 1 or threads <= cores:
            continue
        lines.append(
            f"the {len(here)} ranks on {here[0].host} run {threads} compute threads on "
            f"{_count(cores, 'core')} and slow each other down. {_remedy(len(here), cores)}"
        )
    return lines


def _remedy(ranks: int, cores: int) -> str:
    if ranks <= cores:
        return f"Set OMP_NUM_THREADS={cores // ranks}, or call torch.set_num_threads({cores // ranks})."
    return f"Start at most {_count(cores, 'rank')} on it, with OMP_NUM_THREADS=1."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
