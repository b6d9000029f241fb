"""Starts the ranks of a run as processes of this machine, watches them, and leaves none behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Emit = Callable[[Message], None]
Target = Callable[["RankContext", Any], None]

# How long the errors of other ranks are collected after the first one, to find the one that came first.
GRACE_SECONDS = 0.5
EXIT_SECONDS = 10.0


@dataclass(frozen=True)
class RankContext:
    """What one rank is told by whoever started it."""

    rank: int
    workers: int
    rendezvous: str | None
    """The `init_method` of the process group; None: torchrun's environment variables say it."""
    emit: Emit
    """Sends a message with a `kind` to whoever watches the run. Every rank must call it now and then."""


class WorkerFailed(RuntimeError):
    """A rank raised, died or stopped reporting. All ranks have ended when this is raised."""

    def __init__(self, rank: int, reason: str, details: str = "") -> None:
        super().__init__(f"rank {rank} {reason}")
        self.rank = rank
        self.details = details
        """The rank's traceback, where there is one."""


@dataclass
class _Worker:
    rank: int
    process: SpawnProcess
    messages: connection.Connection[Any, Any]
    last_heard: float
    is_done: bool = False
    is_open: bool = True


@dataclass
class _Failures:
    errors: dict[int, WorkerFailed] = field(default_factory=dict)
    deaths: dict[int, WorkerFailed] = field(default_factory=dict)

    def first(self) -> WorkerFailed:
        """The likely cause: a rank that died without a word, else the first that reported an error."""
        return next(iter([*self.deaths.values(), *self.errors.values()]))

    def __len__(self) -> int:
        return len(self.errors) + len(self.deaths)


def run_workers(
    target: Target,
    argument: Any,
    *,
    workers: int,
    on_message: Callable[[int, Message], None],
    stall_seconds: float,
) -> None:
    """Runs `target(context, argument)` in `workers` new processes; returns when all have returned.

    Args:
        target: a function at module level; it and the argument are pickled.
        on_message: called in this process with the rank and every message that it emits.
        stall_seconds: a rank that emits nothing for so long counts as hanging.

    Raises:
        WorkerFailed: for the rank that failed first. Whatever is raised, also by `on_message` or by Ctrl-C,
            all processes have been killed before it leaves this function.
    """
    with tempfile.TemporaryDirectory(prefix="dreamddp-") as folder:
        fleet: list[_Worker] = []
        try:
            rendezvous = (Path(folder) / "store").as_uri()
            # One by one: whatever has been started when one cannot be is ended, too.
            fleet.extend(_start(target, argument, rank, workers, rendezvous) for rank in range(workers))
            _watch(fleet, on_message, stall_seconds)
        finally:
            _end(fleet)


def _start(target: Target, argument: Any, rank: int, workers: int, rendezvous: str) -> _Worker:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_rank_main, args=(target, argument, rank, workers, rendezvous, sender), daemon=True
    )
    process.start()
    sender.close()
    return _Worker(rank, process, receiver, time.monotonic())


def _watch(fleet: list[_Worker], on_message: Callable[[int, Message], None], stall_seconds: float) -> None:
    failures = _Failures()
    deadline: float | None = None
    while any(worker.is_open for worker in fleet):
        readers = {worker.messages: worker for worker in fleet if worker.is_open}
        for ready in connection.wait(list(readers), timeout=0.1):
            if isinstance(ready, connection.Connection):
                _receive(readers[ready], on_message, failures)
        now = time.monotonic()
        for worker in fleet:
            if worker.is_open and not worker.is_done and now - worker.last_heard > stall_seconds:
                silence = f"has not reported for {stall_seconds:g} s and was stopped"
                failures.deaths.setdefault(worker.rank, WorkerFailed(worker.rank, silence))
        if len(failures):
            deadline = deadline if deadline is not None else now + GRACE_SECONDS
            if now >= deadline:
                break
    if len(failures):
        raise failures.first()


def _receive(worker: _Worker, on_message: Callable[[int, Message], None], failures: _Failures) -> None:
    try:
        message: Message = worker.messages.recv()
    except (EOFError, OSError):
        # The rank's end of the pipe is closed: it has ended, or is about to.
        worker.is_open = False
        worker.process.join(EXIT_SECONDS)
        if not worker.is_done and worker.rank not in failures.errors:
            failures.deaths[worker.rank] = WorkerFailed(worker.rank, _death(worker.process.exitcode))
        return
    worker.last_heard = time.monotonic()
    if message["kind"] == "done":
        worker.is_done = True
    elif message["kind"] == "failed":
        failures.errors[worker.rank] = WorkerFailed(
            worker.rank, f"failed: {message['error']}", message["traceback"]
        )
    else:
        on_message(worker.rank, message)


def _death(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        out_of_memory = " (out of memory?)" if name == "SIGKILL" else ""
        return f"was killed by {name}{out_of_memory} before it was done"
    return f"ended with exit code {exit_code} before it was done"


def _end(fleet: list[_Worker]) -> None:
    for worker in fleet:
        if worker.is_done:
            worker.process.join(EXIT_SECONDS)
        worker.process.kill()
    for worker in fleet:
        worker.process.join()
        worker.messages.close()


def _rank_main(
    target: Target,
    argument: Any,
    rank: int,
    workers: int,
    rendezvous: str,
    sender: connection.Connection[Any, Any],
) -> None:
    # Ctrl-C reaches the whole process group; whoever started the ranks ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    # Standard output belongs to the command's result.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        target(RankContext(rank, workers, rendezvous, sender.send), argument)
    except BaseException as error:
        sender.send({"kind": "failed", "error": describe(error), "traceback": traceback.format_exc()})
        # Destructors could wait for peers that are being killed.
        os._exit(1)
    sender.send({"kind": "done"})


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("a rank runs in a process of its own")

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def describe(error: BaseException) -> str:
    """The error in one line, with the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
