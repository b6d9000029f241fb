"""The runner of ranks itself: results, tracebacks, deaths and time limits."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import RanksFailed, Vanished, run_ranks


def sums(rank: int, value: int) -> torch.Tensor:
    tensor = torch.tensor([value * (rank + 1)])
    dist.all_reduce(tensor)
    return tensor


def raises_on_one(rank: int) -> None:
    if rank == 1:
        raise ValueError("only here")


def dies_on_one(rank: int) -> str:
    if rank == 1:
        os._exit(7)
    return "alive"


def sleeps_on_one(rank: int) -> None:
    if rank == 1:
        time.sleep(600)


def raises_or_sleeps(rank: int) -> None:
    if rank == 0:
        raise ValueError("first")
    time.sleep(600)


def reads_variable(rank: int) -> tuple[int, str]:
    return hash("x"), os.environ["NAME_OF_RANK"]


def test_results_come_in_rank_order() -> None:
    assert run_ranks(sums, 3, 10) == [torch.tensor([60])] * 3


def test_traceback_of_a_rank_is_reported() -> None:
    with pytest.raises(RanksFailed, match="ValueError: only here") as error:
        run_ranks(raises_on_one, 2)
    assert list(error.value.failures) == [1]


def test_death_is_a_failure_unless_allowed() -> None:
    with pytest.raises(RanksFailed, match="rank 1 ---\nended with exit code 7"):
        run_ranks(dies_on_one, 2)
    assert run_ranks(dies_on_one, 2, may_vanish={1}) == ["alive", Vanished(7)]


def test_late_rank_is_killed_and_its_stack_shown() -> None:
    with pytest.raises(RanksFailed, match=r"did not end within 2 s(.|\n)*sleeps_on_one"):
        run_ranks(sleeps_on_one, 2, timeout=2, init=False)


def test_rank_that_hangs_after_a_failure_is_reported_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.distributed.ranks.GRACE_SECONDS", 0.5)
    with pytest.raises(RanksFailed) as error:
        run_ranks(raises_or_sleeps, 2, init=False)
    assert "ValueError: first" in error.value.failures[0]
    assert "of the first failure" in error.value.failures[1]
    assert "raises_or_sleeps" in error.value.failures[1]


def test_each_rank_may_have_its_own_environment() -> None:
    results = run_ranks(
        reads_variable, 2, env=lambda rank: {"NAME_OF_RANK": str(rank), "PYTHONHASHSEED": str(rank + 1)}
    )
    assert [name for _, name in results] == ["0", "1"]
    assert results[0][0] != results[1][0]
    assert "NAME_OF_RANK" not in os.environ
