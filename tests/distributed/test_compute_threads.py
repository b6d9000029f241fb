"""Ranks that share cores: their threads stay as many as they were, and rank 0 says that they are too many."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dreamddp import DreamDDP
from dreamddp.compute_threads import ComputeThreads, crowded_machines
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.ranks import run_ranks


def attach_and_train(rank: int) -> tuple[list[int], list[str]]:
    """Compute threads before attaching, after it and after training, and the warnings."""
    counts = [torch.get_num_threads()]
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sync = DreamDDP(model, optimizer, period=1, planner="equal-count", profile_iterations=5)
        counts.append(torch.get_num_threads())
        for iteration in range(7):
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()
        sync.finish()
    counts.append(torch.get_num_threads())
    return counts, [str(w.message) for w in caught if "compute threads" in str(w.message)]


def attach_on_few_cores(rank: int, threads: int, cores: list[int]) -> tuple[list[int], list[str]]:
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)
    return attach_and_train(rank)


@pytest.mark.parametrize(
    ("workers", "threads", "num_cores", "text"),
    [
        (4, 1, 2, "the 4 ranks on {} run 4 compute threads on 2 cores and slow each other down. Start at"),
        (2, 3, 2, "the 2 ranks on {} run 6 compute threads on 2 cores and slow each other down. Set OMP_"),
        (2, 1, 2, None),
    ],
)
def test_f6_threads_are_left_alone_and_too_many_are_reported(
    workers: int, threads: int, num_cores: int, text: str | None
) -> None:
    cores = sorted(os.sched_getaffinity(0))[:num_cores]
    if len(cores) < num_cores:
        pytest.skip(f"needs {num_cores} cores")
    results = run_ranks(attach_on_few_cores, workers, threads, cores)
    assert [counts for counts, _ in results] == [[threads] * 3] * workers
    messages = results[0][1]
    assert all(others == [] for _, others in results[1:])
    if text is None:
        assert messages == []
    else:
        (message,) = messages
        assert message.startswith("DreamDDP: " + text.format(os.uname().nodename))


def start_with_own_threads(rank: int, folder: str) -> tuple[list[int], list[str]]:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=1)
    return attach_and_train(rank)


def test_f6_omp_num_threads_is_respected(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 cores")
    env = {"OMP_NUM_THREADS": "2", "GLOO_SOCKET_IFNAME": "lo"}  # neither the tests' own nor run_ranks' one
    assert run_ranks(start_with_own_threads, 1, str(tmp_path), env=env, init=False) == [([2] * 3, [])]


def rank_on(machine: str, threads: int, *cores: int) -> ComputeThreads:
    return ComputeThreads(machine, f"host-{machine}", threads, cores)


def test_f6_cores_count_once_and_machines_apart() -> None:
    # Each rank is pinned to cores of its own.
    assert crowded_machines([rank_on("a", 2, 0, 1), rank_on("a", 2, 2, 3)]) == []
    assert crowded_machines([rank_on("a", 2, 0, 1), rank_on("b", 2, 0, 1)]) == []
    # One rank alone is its user's own choice.
    assert crowded_machines([rank_on("a", 64, 0)]) == []
    (line,) = crowded_machines([rank_on("b", 1, 0), *[rank_on("a", 4, 0, 1, 2, 3, 4)] * 2])
    assert line == (
        "the 2 ranks on host-a run 8 compute threads on 5 cores and slow each other down. "
        "Set OMP_NUM_THREADS=2, or call torch.set_num_threads(2)."
    )
    (line,) = crowded_machines([rank_on("a", 1, 3), rank_on("a", 1, 3)])
    assert line == (
        "the 2 ranks on host-a run 2 compute threads on 1 core and slow each other down. "
        "Start at most 1 rank on it, with OMP_NUM_THREADS=1."
    )
