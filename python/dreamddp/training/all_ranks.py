"""All ranks of a job: as processes started here, or as the one of torchrun's that this process is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dreamddp.training.config import TorchrunRank
from dreamddp.training.jobs import ProfileJob, TrainJob
from dreamddp.training.launcher import Message, RankContext, Target, run_workers

# A hanging collective is found by its own timeout, which says more than silence does.
SILENCE_SECONDS = 60.0


def run_all_ranks(
    target: Target, job: TrainJob | ProfileJob, torchrun: TorchrunRank | None, take: Callable[[Message], None]
) -> None:
    """Starts the ranks here and passes on what rank 0 emits, or is one of torchrun's ranks itself.

    Raises WorkerFailed when a rank that was started here failed.
    """
    workers = job.config.workers
    if torchrun is not None:
        with _output_to_errors():
            target(RankContext(torchrun.rank, workers, None, take), job)
        return

    def on_message(rank: int, message: Message) -> None:
        if rank == 0:
            take(message)

    run_workers(
        target,
        job,
        workers=workers,
        on_message=on_message,
        stall_seconds=job.timeout_seconds + SILENCE_SECONDS,
    )


@contextmanager
def _output_to_errors() -> Iterator[None]:
    """Standard output is for the command's result: what libraries print goes to standard error inside."""
    sys.stdout.flush()
    output = sys.stdout.fileno()
    kept = os.dup(output)
    os.dup2(sys.stderr.fileno(), output)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, output)
        os.close(kept)
