"""Errors over an emulated link reach whoever waits; nothing hangs, also at the exit of the interpreter."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dreamddp.emulated_link import emulated_link
from tests.distributed.emulated_ranks import emulated_ranks
from tests.distributed.ranks import Vanished, run_ranks

BYTE_PER_HOUR = 1 / 3600
"""A rate at which nothing arrives while a test runs."""


def peer_vanishes(rank: int, folder: Path) -> tuple[str, str]:
    with emulated_ranks(rank, 2, folder):
        dist.all_reduce(torch.ones(4))
        if rank == 1:
            os._exit(0)
        work = dist.all_reduce(torch.ones(4), async_op=True)
        future = work.get_future()
        with pytest.raises(RuntimeError) as error:
            work.wait()
        assert work.is_completed()
        assert not work.is_success()
        with pytest.raises(RuntimeError) as error_of_future:
            future.wait()
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(4))
        return str(error.value), str(error_of_future.value)


def test_dead_peer_is_an_error(tmp_path: Path) -> None:
    results: list[object] = list(run_ranks(peer_vanishes, 2, tmp_path, init=False, may_vanish={1}))
    errors, peer = results
    assert peer == Vanished(0)
    assert isinstance(errors, tuple)
    assert errors[0] == errors[1] != ""


def peer_stays_away(rank: int, folder: Path) -> None:
    with emulated_ranks(rank, 2, folder, timeout_seconds=1):
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            with pytest.raises(RuntimeError, match=r"(?i)timeout|timed out"):
                dist.all_reduce(torch.ones(4))
            store.set("rank 0 is done", "1")
        else:
            store.wait(["rank 0 is done"], timedelta(seconds=30))


def test_peer_that_stays_away_is_a_timeout(tmp_path: Path) -> None:
    run_ranks(peer_stays_away, 2, tmp_path, init=False)


def link_is_too_slow(rank: int, folder: Path) -> list[str]:
    texts = []
    with emulated_ranks(rank, 2, folder, bandwidth=BYTE_PER_HOUR, timeout_seconds=1):
        with pytest.raises(RuntimeError) as error:
            dist.all_reduce(torch.ones(4))
        texts.append(str(error.value))
    return texts


def test_link_slower_than_the_timeout_is_an_error_that_says_so(tmp_path: Path) -> None:
    for (text,) in run_ranks(link_is_too_slow, 2, tmp_path, init=False):
        assert "timed out after 1000 ms: over the emulated link" in text
        assert "Raise the timeout" in text


def waits_with_timeout(rank: int, folder: Path) -> str:
    with emulated_ranks(rank, 2, folder, bandwidth=BYTE_PER_HOUR, timeout_seconds=100_000):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        with pytest.raises(RuntimeError, match="timed out"):
            work.wait(timedelta(milliseconds=20))
        assert not work.is_completed()
    # destroy_process_group() has ended what was under way.
    with pytest.raises(RuntimeError) as error:
        work.wait()
    return str(error.value)


def test_wait_honours_its_timeout_and_destroying_ends_works(tmp_path: Path) -> None:
    for text in run_ranks(waits_with_timeout, 2, tmp_path, init=False):
        assert "the process group over the emulated link was" in text


def rejected_arguments(rank: int, folder: Path) -> float:
    with emulated_ranks(rank, 2, folder):
        with pytest.raises((RuntimeError, ValueError)):
            dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)  # not for floating-point numbers
        with pytest.raises(ValueError, match="expected an input of 2 times"):
            dist.reduce_scatter_single(torch.empty(2), torch.empty(3))
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return tensor.item()


def test_rejected_arguments_leave_the_group_usable(tmp_path: Path) -> None:
    assert run_ranks(rejected_arguments, 2, tmp_path, init=False) == [2.0, 2.0]


def exits_with_works_under_way(rank: int, destroy: bool) -> None:
    group = dist.new_group(backend=emulated_link(BYTE_PER_HOUR), timeout=timedelta(hours=100_000))
    for _ in range(3):
        work = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
        work.get_future().then(lambda future: future.value()[0] * 2)
    if destroy:
        dist.destroy_process_group(group)


@pytest.mark.parametrize("destroy", [False, True])
def test_exit_with_works_under_way(destroy: bool) -> None:
    run_ranks(exits_with_works_under_way, 2, destroy, fresh=True)


def exits_without_destroying(rank: int, folder: Path) -> None:
    dist.init_process_group(
        emulated_link(BYTE_PER_HOUR), init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    work.get_future().then(lambda future: future.value()[0] * 2)
    time.sleep(0.05 * rank)


def test_exit_without_destroying(tmp_path: Path) -> None:
    run_ranks(exits_without_destroying, 2, tmp_path, fresh=True, init=False)
