"""Joins a rank to the others: over the emulated link, or over the real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from dreamddp.group import explained
from dreamddp.training.config import EmulatedLink
from dreamddp.training.launcher import RankContext


@contextmanager
def joined(
    context: RankContext, link: EmulatedLink | None, timeout_seconds: float
) -> Iterator[dist.ProcessGroup]:
    """The default process group exists inside; over the emulated link where one is given.

    Yields a second group of the same ranks, never emulated, for what is not part of the training: barriers
    off the clock and collecting results.
    """
    timeout = timedelta(seconds=timeout_seconds)
    if link is None:
        backend = "gloo"
    else:
        from dreamddp.emulated_link import emulated_link

        backend = emulated_link(
            bandwidth=link.bandwidth_bytes_per_second, latency=link.latency_seconds, in_flight=1
        )
    with explained("joining the process group"):
        if context.rendezvous is None:
            dist.init_process_group(backend, timeout=timeout)
        else:
            dist.init_process_group(
                backend,
                init_method=context.rendezvous,
                rank=context.rank,
                world_size=context.workers,
                timeout=timeout,
            )
    control = dist.new_group(backend="gloo", timeout=timeout)
    assert isinstance(control, dist.ProcessGroup)
    yield control
    # Not after an error: peers may be gone, and the process ends anyway.
    dist.destroy_process_group()
