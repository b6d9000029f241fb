"""Runs a function on K ranks: real processes, joined by a real Gloo group, with a hard time limit.

    def sums(rank: int, value: int) -> int:
        tensor = torch.tensor([value * rank])
        dist.all_reduce(tensor)
        return int(tensor)

    def test_sums() -> None:
        assert run_ranks(sums, 2, 10) == [10, 10]

Processes are forked from a server that has imported torch already, so a rank starts in milliseconds. A rank
that needs an environment of its own, or whose interpreter's exit is under test, gets a fresh interpreter.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
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
GRACE_SECONDS = 5.0


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
        timeout: seconds after which all ranks are killed; also the timeout of the group's collectives.
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
            return _collect(running, timeout, frozenset(may_vanish), Path(folder))
        finally:
            for process, receiver in running:
                process.kill()
                process.join()
                receiver.close()


def _fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch.nn.parallel"])
    return context


def _start(context: SpawnContext | ForkServerContext, job: _Job, variables: Mapping[str, str]) -> _Running:
    receiver, sender = context.Pipe(duplex=False)
    # Pickled here: multiprocessing would pass tensors through shared memory that dies with a rank.
    process = context.Process(target=_rank_main, args=(pickle.dumps(job), sender), daemon=True)
    with _environment(variables):
        process.start()
    sender.close()
    return process, receiver


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
    # The ranks write their stacks at `timeout`, before they are killed.
    deadline = time.monotonic() + timeout + 1.0
    while sentinels:
        ready = connection.wait([*receivers, *sentinels], max(0.0, deadline - time.monotonic()))
        if not ready:
            for rank in sentinels.values():
                failures.setdefault(rank, _stacks(folder, rank, timeout))
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
        if failures:
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
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


def _stacks(folder: Path, rank: int, timeout: float) -> str:
    path = folder / f"stacks-{rank}"
    text = path.read_text() if path.exists() else ""
    return f"did not end within {timeout:g} s\n{text}"


def _rank_main(pickled_job: bytes, sender: _Pipe) -> None:
    job: _Job = pickle.loads(pickled_job)
    with open(Path(job.folder) / f"stacks-{job.rank}", "w") as stacks:
        faulthandler.dump_traceback_later(job.timeout, file=stacks)
        try:
            answer = pickle.dumps((True, _call(job)))
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        sender.send_bytes(answer)
        faulthandler.cancel_dump_traceback_later()


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
    try:
        return job.function(job.rank, *job.args)
    finally:
        dist.destroy_process_group()
