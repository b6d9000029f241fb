"""Whatever one worker does, all have ended when run_workers() returns or raises, and the cause is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dreamddp.training.launcher import Message, RankContext, WorkerFailed, run_workers

pytestmark = pytest.mark.timeout(300)


def reports(context: RankContext, value: int) -> None:
    context.emit({"kind": "result", "value": value + context.rank, "workers": context.workers})


def raises_on_one(context: RankContext, _: None) -> None:
    context.emit({"kind": "process", "id": os.getpid()})
    if context.rank == 1:
        raise ValueError("no such\nbatch")
    time.sleep(600)


def exits_on_one(context: RankContext, how: str) -> None:
    context.emit({"kind": "process", "id": os.getpid()})
    if context.rank == 1:
        if how == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7)
    time.sleep(600)


def hangs_on_one(context: RankContext, _: None) -> None:
    context.emit({"kind": "process", "id": os.getpid()})
    while True:
        time.sleep(0.1)
        if context.rank != 1:
            context.emit({"kind": "progress"})


def sleeps(context: RankContext, _: None) -> None:
    context.emit({"kind": "process", "id": os.getpid()})
    time.sleep(600)


def run(target: Any, argument: Any, stall_seconds: float = 60.0) -> list[tuple[int, Message]]:
    messages: list[tuple[int, Message]] = []
    try:
        run_workers(
            target,
            argument,
            workers=2,
            on_message=lambda rank, message: messages.append((rank, message)),
            stall_seconds=stall_seconds,
        )
    finally:
        assert [m["id"] for _, m in messages if m["kind"] == "process" and is_running(m["id"])] == []
    return messages


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_messages_of_all_ranks_arrive() -> None:
    messages = sorted(run(reports, 10), key=lambda item: item[0])
    assert messages == [
        (0, {"kind": "result", "value": 10, "workers": 2}),
        (1, {"kind": "result", "value": 11, "workers": 2}),
    ]


def test_exception_is_reported_in_one_line_and_ends_all() -> None:
    with pytest.raises(WorkerFailed) as error:
        run(raises_on_one, None)
    assert str(error.value).startswith("rank 1 failed: ValueError: no such batch (test_launcher.py:")
    assert "raise ValueError" in error.value.details


@pytest.mark.parametrize(
    ("how", "message"),
    [("exit", "rank 1 ended with exit code 7 before"), ("signal", "rank 1 was killed by SIGKILL")],
)
def test_death_is_reported_and_ends_all(how: str, message: str) -> None:
    with pytest.raises(WorkerFailed, match=message):
        run(exits_on_one, how)


def test_silence_is_reported_and_ends_all() -> None:
    with pytest.raises(WorkerFailed, match="rank 1 has not reported for 15 s and was stopped"):
        run(hangs_on_one, None, stall_seconds=15.0)


def test_error_of_the_watcher_ends_all() -> None:
    seen: list[int] = []

    def fail(_: int, message: Message) -> None:
        seen.append(message["id"])
        if len(seen) == 2:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run_workers(sleeps, None, workers=2, on_message=fail, stall_seconds=60.0)
    assert [process_id for process_id in seen if is_running(process_id)] == []


PROGRAM = """
from dreamddp.training.launcher import run_workers
from tests.distributed.test_launcher import sleeps

if __name__ == "__main__":
    def show(rank, message):
        print(message["id"], flush=True)
    run_workers(sleeps, None, workers=2, on_message=show, stall_seconds=60.0)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_program_that_started_them(sent: signal.Signals, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        for _ in range(2):
            assert int(launcher.stdout.readline()) > 0
        launcher.send_signal(sent)
        # All processes of the run share this pipe: it ends when the last of them has.
        launcher.stderr.read()
        assert launcher.wait() != 0
