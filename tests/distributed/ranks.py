"""Runs a function on K ranks: real processes, joined by a real Gloo group, with a hard time limit.

    def sums(rank: int, value: int) -> int:
        tensor = torch.tensor([value * rank])
        dist.all_reduce(tensor)
        return int(tensor)

    def test_sums() -> None:
        assert run_ranks(sums, 2, 10) == [10, 10]

Processes are forked from a server that has imported what ranks need already, so they start in milliseconds. A
rank that needs an environment of its own, or whose interpreter's exit is under test, gets a fresh
interpreter.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    _Pipe = connection.Connection[Any, Any]
    _Running = tuple[BaseProcess, _Pipe]

T = TypeVar("T")

# How long the other ranks may go on after the first failure, so that their errors are reported too.
GRACE_SECONDS = 10.0
# How long ranks may take to start (imports), and hanging ones to write their stacks.
START_SECONDS = 120.0
STACKS_SECONDS = 5.0


@dataclass(frozen=True)
class Vanished:
    """Stands for the result of a rank that was allowed to end without one."""

    exit_code: int


class RanksFailed(AssertionError):
    """Some ranks raised, died or did not end in time. `failures` maps each of them to its text."""

    def __init__(self, failures: Mapping[int, str]) -> None:
        self.failures = dict(failures)
        super().__init__("\n".join(f"--- rank {rank} ---\n{text}" for rank, text in sorted(failures.items())))


@dataclass(frozen=True)
class _Job:
    function: Callable[..., object]
    args: tuple[object, ...]
    rank: int
    world_size: int
    timeout: float
    folder: str
    init: bool


def run_ranks(
    function: Callable[..., T],
    world_size: int,
    *args: object,
    timeout: float = 60.0,
    env: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None,
    fresh: bool = False,
    init: bool = True,
    may_vanish: Collection[int] = (),
) -> list[T]:
    """Calls `function(rank, *args)` on every rank and returns the results, rank 0 first.

    Args:
        function: at module level of an importable module; its result is pickled.
        timeout: seconds, from when all ranks have started, after which they are killed; also the timeout of
            the group's collectives.
        env: environment variables, for all ranks or by rank; implies `fresh`.
        fresh: start new interpreters, which also end like any program (exit handlers, destructors).
        init: create the default process group (Gloo) around the call.
        may_vanish: ranks that may end without a result; theirs is `Vanished`.

    Raises:
        RanksFailed: with the traceback of every rank that raised, the exit code of every one that died, and
            the stacks of all threads of every one that had not ended in time.
    """
    context = multiprocessing.get_context("spawn") if fresh or env is not None else _fork_server()
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        running = []
        try:
            for rank in range(world_size):
                job = _Job(function, args, rank, world_size, timeout, folder, init)
                variables = env(rank) if callable(env) else env or {}
                running.append(_start(context, job, variables))
            _wait_for_starts(running)
            return _collect(running, timeout, frozenset(may_vanish), Path(folder))
        finally:
            for process, receiver in running:
                process.kill()
                process.join()
                receiver.close()


def _fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    # The first optimizer imports torch._dynamo, which takes longer than most tests.
    context.set_forkserver_preload(
        ["torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "pytest", "dreamddp"]
    )
    return context


def _start(context: SpawnContext | ForkServerContext, job: _Job, variables: Mapping[str, str]) -> _Running:
    receiver, sender = context.Pipe(duplex=False)
    # Pickled here: multiprocessing would pass tensors through shared memory that dies with a rank.
    process = context.Process(target=_rank_main, args=(pickle.dumps(job), sender), daemon=True)
    with _environment(variables):
        process.start()
    sender.close()
    return process, receiver


def _wait_for_starts(running: list[_Running]) -> None:
    deadline = time.monotonic() + START_SECONDS
    for rank, (_, receiver) in enumerate(running):
        if not receiver.poll(max(0.0, deadline - time.monotonic())):
            raise RanksFailed({rank: f"did not start within {START_SECONDS:g} s"})
        with suppress(EOFError):  # it died before; that is found when its result is collected
            receiver.recv_bytes()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _collect(running: list[_Running], timeout: float, may_vanish: frozenset[int], folder: Path) -> list[Any]:
    results: dict[int, object] = {}
    failures: dict[int, str] = {}
    sentinels = {process.sentinel: rank for rank, (process, _) in enumerate(running)}
    receivers = {receiver: rank for rank, (_, receiver) in enumerate(running)}
    deadline = time.monotonic() + timeout
    verdict = f"did not end within {timeout:g} s"
    while sentinels:
        ready = connection.wait([*receivers, *sentinels], max(0.0, deadline - time.monotonic()))
        if not ready:
            late = [rank for rank in sentinels.values() if rank not in failures]
            stacks = _stacks(
                [running[rank][0] for rank in late], [_stacks_path(folder, rank) for rank in late]
            )
            failures |= {rank: f"{verdict}\n{text}" for rank, text in zip(late, stacks, strict=True)}
            break
        for receiver in [item for item in ready if item in receivers]:
            _receive(receivers.pop(receiver), receiver, results, failures)
        # An end is judged when nothing is left to read: a result may have come at the same moment.
        for sentinel in [
            item for item in ready if item in sentinels and sentinels[item] not in receivers.values()
        ]:
            rank = sentinels.pop(sentinel)
            process, _ = running[rank]
            process.join()
            if rank in may_vanish and rank not in results | failures:
                results[rank] = Vanished(process.exitcode or 0)
            elif rank not in failures and (process.exitcode != 0 or rank not in results):
                failures[rank] = f"ended with exit code {process.exitcode}"
        if failures and deadline > time.monotonic() + GRACE_SECONDS:
            deadline = time.monotonic() + GRACE_SECONDS
            verdict = f"did not end within {GRACE_SECONDS:g} s of the first failure"
    if failures:
        raise RanksFailed(failures)
    return [results[rank] for rank in range(len(running))]


def _receive(rank: int, receiver: _Pipe, results: dict[int, object], failures: dict[int, str]) -> None:
    try:
        succeeded, value = pickle.loads(receiver.recv_bytes())
    except EOFError:  # the rank died; its exit code tells more
        return
    if succeeded:
        results[rank] = value
    else:
        failures[rank] = value


def _stacks_path(folder: str | Path, rank: int) -> Path:
    return Path(folder) / f"stacks-{rank}"


def _stacks(processes: list[BaseProcess], paths: list[Path]) -> list[str]:
    """Makes hanging processes write the stacks of their threads."""
    for process in processes:
        if process.pid is not None:
            os.kill(process.pid, signal.SIGUSR1)
    deadline = time.monotonic() + STACKS_SECONDS
    while time.monotonic() < deadline and not all(path.stat().st_size for path in paths):
        time.sleep(0.05)
    time.sleep(0.05)  # what has begun to be written is soon complete
    return [path.read_text() for path in paths]


def _rank_main(pickled_job: bytes, sender: _Pipe) -> None:
    job: _Job = pickle.loads(pickled_job)
    with _stacks_path(job.folder, job.rank).open("w") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        sender.send_bytes(b"started")
        try:
            answer = pickle.dumps((True, _call(job)))
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        sender.send_bytes(answer)
        faulthandler.unregister(signal.SIGUSR1)


def _call(job: _Job) -> object:
    if not job.init:
        return job.function(job.rank, *job.args)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{job.folder}/store",
        rank=job.rank,
        world_size=job.world_size,
        timeout=timedelta(seconds=job.timeout),
    )
    # A rank that ends at once must not close connections which others are still making.
    dist.barrier()
    try:
        return job.function(job.rank, *job.args)
    finally:
        dist.destroy_process_group()
