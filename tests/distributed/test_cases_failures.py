"""Failures of peers, of the network and of the user's own loop cost a clear message, never more."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dreamddp import DreamDDP, Link, SyncError
from tests.distributed.emulated_ranks import emulated_ranks
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan, forward_window_plan
from tests.distributed.ranks import Vanished, run_ranks

LAYERS = ["0", "2", "4"]


def attach(timeout: float, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer, DreamDDP]:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    options.setdefault("plan", both_windows_plan(LAYERS, period=1))
    return model, optimizer, DreamDDP(model, optimizer, timeout=timeout, **options)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, iteration: int) -> None:
    loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
    optimizer.step()
    optimizer.zero_grad()


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, iterations: Iterable[int]) -> None:
    for iteration in iterations:
        step(model, optimizer, rank, iteration)


def sync_error_of(call: Callable[[], object]) -> tuple[str, float]:
    """Its text, and how long the call took."""
    began = time.monotonic()
    with pytest.raises(SyncError) as error:
        call()
    return str(error.value), time.monotonic() - began


def written_to_stderr(path: Path, call: Callable[[], None]) -> str:
    with path.open("wb") as file:
        errors = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            call()
        finally:
            os.dup2(errors, 2)
            os.close(errors)
    return path.read_text()


# A peer that is missing


def train_until(
    rank: int, steps: int, timeout: float, at: dict[int, Callable[[], None]], **options: Any
) -> tuple[str, float]:
    model, optimizer, sync = attach(timeout, **options)

    def train() -> None:
        for iteration in range(steps):
            if iteration in at:
                at[iteration]()
            step(model, optimizer, rank, iteration)
        sync.finish()

    return sync_error_of(train)


def vanish_at_once(rank: int) -> tuple[str, float]:
    return train_until(rank, 4, 5.0, {0: lambda: os._exit(0)} if rank == 1 else {})


def test_e1_a_rank_that_exits_is_named() -> None:
    results: list[Any] = run_ranks(vanish_at_once, 2, timeout=30, may_vanish=[1])
    survivor, peer = results
    assert peer == Vanished(0)
    text, seconds = survivor
    assert re.match(
        r"rank 0: comparing when layers are read failed after \d\S* s, as a peer is missing", text
    )
    assert seconds < 10


def vanish_at_step_three(rank: int) -> tuple[str, float]:
    return train_until(rank, 6, 8.0, {3: lambda: os._exit(0)} if rank == 2 else {})


def test_of_three_ranks_the_dead_one_is_named() -> None:
    results: list[Any] = run_ranks(vanish_at_step_three, 3, timeout=40, may_vanish=[2])
    first, second, peer = results
    assert peer == Vanished(0)
    for text, seconds in (first, second):
        assert re.search("step [23]", text), text
        assert re.search(r"rank 2 (does not answer|has given no sign of life)", text), text
        assert not re.search(r"rank [01] (does not answer|has given no sign of life)", text), text
        assert seconds < 8 + 4


def sleep_at_step_two(rank: int, folder: str) -> tuple[tuple[str, float], str]:
    outcome: list[tuple[str, float]] = []
    at = {2: lambda: time.sleep(9)} if rank == 1 else {}
    errors = written_to_stderr(
        Path(folder) / f"errors{rank}", lambda: outcome.append(train_until(rank, 4, 3.0, at))
    )
    return outcome[0], errors


def test_a8_e2_the_late_rank_is_named_by_the_warning_and_by_the_error(tmp_path: Path) -> None:
    ((text, seconds), errors), ((other_text, _), _) = run_ranks(
        sleep_at_step_two, 2, str(tmp_path), timeout=40
    )
    # Rank 1 sleeps before its backward of step 2, in which '4' is the first layer.
    late = "rank 1 is alive, but has not come so far: it is at step 1"
    assert re.search(r"rank 0 has been averaging '4' \(op \d of the plan, step 2\) for 1\.[5-9]", errors)
    assert errors.count(late) == 1
    assert re.match(r"rank 0: averaging '4' \(op \d of the plan, step 2\) failed after 3(\.\d+)? s", text)
    assert late in text
    assert 3 <= seconds < 8
    assert "a peer" in other_text


def stop_at_step_two(rank: int) -> tuple[str, float]:
    return train_until(rank, 4, 3.0, {2: lambda: os.kill(os.getpid(), signal.SIGSTOP)} if rank == 1 else {})


def start_stopped(rank: int, folder: str) -> tuple[str, float] | None:
    """Rank 1 is stopped at step 2, until the others have failed."""
    path = Path(folder) / "pid"
    if rank == 1:
        path.write_text(str(os.getpid()))
        sync_error_of(lambda: stop_at_step_two(rank))
        return None
    try:
        return stop_at_step_two(rank)
    finally:
        if rank == 2:
            time.sleep(1)
            os.kill(int(path.read_text()), signal.SIGKILL)


def test_a_stopped_rank_is_told_from_a_late_one(tmp_path: Path) -> None:
    results = run_ranks(start_stopped, 3, str(tmp_path), timeout=40, may_vanish=[1])
    for result in (results[0], results[2]):
        assert result is not None
        text, seconds = result
        assert "rank 1 has given no sign of life" in text
        assert "rank 0 has" not in text
        assert "rank 2 has" not in text
        assert seconds < 9


# After a failure


def save_after_failure(rank: int, folder: str) -> list[str]:
    model, optimizer, sync = attach(2.0)
    step(model, optimizer, rank, 0)
    if rank == 1:
        time.sleep(6)
        os._exit(0)
    text, _ = sync_error_of(lambda: steps(model, optimizer, rank, range(1, 4)))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.save(model.state_dict(), Path(folder) / "model.pt")
    again = [sync_error_of(lambda: step(model, optimizer, rank, 5))[0], sync_error_of(sync.finish)[0]]
    for key, value in torch.load(Path(folder) / "model.pt").items():
        assert torch.equal(value, before[key]), key
        assert torch.isfinite(value).all()
    sync.detach()
    model(torch.randn(2, 8))
    return [text, *again]


def test_a_checkpoint_can_be_written_after_a_failure(tmp_path: Path) -> None:
    texts = run_ranks(save_after_failure, 2, str(tmp_path), timeout=40, may_vanish=[1])[0]
    assert texts == [texts[0]] * 3


def exit_after_failure(rank: int) -> None:
    model, optimizer, _sync = attach(2.0)
    step(model, optimizer, rank, 0)
    if rank == 1:
        time.sleep(20)  # its process and connections live on, so reductions stay under way
        return
    sync_error_of(lambda: steps(model, optimizer, rank, range(1, 4)))
    # This rank's interpreter now ends while Gloo waits for rank 1.


def test_the_interpreter_ends_while_reductions_are_under_way() -> None:
    began = time.monotonic()
    process = run_alone(exit_after_failure, 2, ends=[0], within=12)
    assert process == [0]
    assert time.monotonic() - began < 60


def run_alone(function: Callable[..., None], world_size: int, *, ends: list[int], within: float) -> list[int]:
    """Exit codes of the ranks `ends`, which must end in time; the others are killed."""
    import multiprocessing
    import tempfile

    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=join_and_call, args=(function, rank, world_size, folder))
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        try:
            deadline = time.monotonic() + 100
            while not all((Path(folder) / f"joined{rank}").exists() for rank in range(world_size)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            for rank in ends:
                processes[rank].join(within)
            return [processes[rank].exitcode for rank in ends]  # type: ignore[misc]
        finally:
            for process in processes:
                process.kill()
                process.join()


def join_and_call(function: Callable[..., None], rank: int, world_size: int, folder: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    dist.barrier()
    torch.optim.SGD(mlp().parameters(), lr=0.1)  # what it imports takes seconds
    (Path(folder) / f"joined{rank}").touch()
    function(rank)


# Ranks that do not do the same


def run_out_of_batches(rank: int) -> tuple[str, float]:
    return train_until(rank, 10 if rank == 0 else 8, 3.0, {})


def test_a7_a_rank_with_fewer_batches_is_named() -> None:
    (text, seconds), (other_text, other_seconds) = run_ranks(run_out_of_batches, 2, timeout=40)
    assert "step 8) failed after" in text
    assert "rank 1 has called finish() at step 7" in text
    assert "rank 1: finish() after step 7 failed after" in other_text
    assert "rank 0" in other_text
    assert max(seconds, other_seconds) < 12


def skip_a_step(rank: int) -> tuple[str, float]:
    model, optimizer, sync = attach(3.0)

    def train() -> None:
        for iteration in range(10):
            if rank == 1 and iteration == 7:
                continue
            step(model, optimizer, rank, iteration)
        sync.finish()

    return sync_error_of(train)


def test_a4_a_rank_that_skips_a_backward_is_named() -> None:
    (text, _), (other_text, _) = run_ranks(skip_a_step, 2, timeout=40)
    assert "step 9) failed after" in text
    assert "rank 1 has called finish() at step 8" in text
    assert "finish() after step 8" in other_text


# Pauses


def evaluate_for_long(rank: int, pausing: list[int]) -> dict[str, torch.Tensor]:
    model, optimizer, sync = attach(2.0)
    for iteration in range(6):
        if iteration == 3 and rank in pausing:
            with sync.pause():
                time.sleep(5)
        step(model, optimizer, rank, iteration)
    sync.finish()
    return model.state_dict()


@pytest.mark.parametrize("pausing", [[0], [1], [0, 1]])
def test_e4_a_pause_longer_than_the_timeout_is_no_error(pausing: list[int]) -> None:
    first, second = run_ranks(evaluate_for_long, 2, pausing, timeout=40)
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def die_in_a_pause(rank: int) -> tuple[str, float]:
    def pause_and_stop(sync: DreamDDP) -> None:
        with sync.pause():
            time.sleep(1)
            os._exit(0)

    model, optimizer, sync = attach(2.0, plan=forward_window_plan(LAYERS))

    def train() -> None:
        for iteration in range(6):
            if iteration == 3 and rank == 1:
                pause_and_stop(sync)
            step(model, optimizer, rank, iteration)
        sync.finish()

    return sync_error_of(train)


def test_a_rank_that_dies_in_a_pause_is_an_error() -> None:
    text, seconds = run_ranks(die_in_a_pause, 2, timeout=40, may_vanish=[1])[0]
    assert "rank 1" in text
    assert seconds < 10


# The user's own loop


def interrupt_in_a_second() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()


def interrupted_in_a_wait(rank: int) -> None:
    model, optimizer, _sync = attach(60.0)
    step(model, optimizer, rank, 0)
    if rank == 1:
        time.sleep(60)
        return
    began = time.monotonic()
    interrupt_in_a_second()
    try:
        step(model, optimizer, rank, 1)
    except KeyboardInterrupt:
        assert time.monotonic() - began < 6
        sys.exit(7)
    # Exit code 0 would say that nothing was interrupted.


def interrupted_in_finish(rank: int) -> None:
    model, optimizer, sync = attach(60.0)
    step(model, optimizer, rank, 0)
    if rank == 1:
        time.sleep(60)
        return
    interrupt_in_a_second()
    try:
        sync.finish()
    except KeyboardInterrupt:
        sys.exit(7)


def raises_with_averages_under_way(rank: int) -> None:
    model, optimizer, _sync = attach(60.0, plan=forward_window_plan(LAYERS))
    if rank == 1:
        step(model, optimizer, rank, 0)
        time.sleep(60)
        return
    step(model, optimizer, rank, 0)
    loss_of("mlp", model, batch_for("mlp", rank, 1)).backward()
    optimizer.step()  # launches ops that rank 1 does not
    try:
        raise KeyError("the user's own")
    except KeyError:
        sys.exit(7)


@pytest.mark.parametrize(
    "loop", [interrupted_in_a_wait, interrupted_in_finish, raises_with_averages_under_way]
)
def test_a_loop_that_is_left_ends_its_process_promptly(loop: Callable[[int], None]) -> None:
    assert run_alone(loop, 2, ends=[0], within=15) == [7]


# A slow link


def train_on_a_slow_link(rank: int, folder: Path) -> tuple[str, float]:
    """The plan counts on a fast link. Step 0 is sent over one on which each chunk takes a second or more."""
    with emulated_ranks(rank, 2, folder, bandwidth=1e3, timeout_seconds=60):
        link = Link(bandwidth_bytes_per_second=1e4, workers=2)
        model, optimizer, _sync = attach(300.0, link=link)
        step(model, optimizer, rank, 0)
        step(model, optimizer, rank, 1)
        if rank == 1:
            os._exit(0)
        return sync_error_of(lambda: steps(model, optimizer, rank, (2, 3)))


def test_e5_a_slow_link_is_tolerated_and_a_dead_peer_is_not(tmp_path: Path) -> None:
    text, seconds = run_ranks(train_on_a_slow_link, 2, tmp_path, init=False, timeout=50, may_vanish=[1])[0]
    assert "rank 1 does not answer" in text
    assert seconds < 40
