"""Ranks whose data ends at different times, and iterations that all ranks leave out together.

What ranks tell each other here goes through a group of its own, so that it does not come between averages.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from dreamddp._core import SyncError, reject
from dreamddp._runtime import Engine
from dreamddp.group import explained
from dreamddp.loop_hooks import LoopHooks
from dreamddp.planning import Planning

MAX_UNDER_WAY = 8
"""Announcements that an active rank leaves under way before it waits for the oldest."""


def make_vote_group(group: dist.ProcessGroup, timeout_seconds: float) -> dist.ProcessGroup:
    """A group of the same ranks for a few bytes of the CPU. Collective.

    Raises:
        SyncError: where a peer is missing.
    """
    with explained("creating a process group for join() and skip_step()"):
        made: dist.ProcessGroup = dist.new_group(
            dist.get_process_group_ranks(group),
            timeout=datetime.timedelta(seconds=timeout_seconds),
            backend="gloo",
            use_local_synchronization=True,
        )
    return made


def check_can_join(planning: Planning) -> None:
    """Raises ValueError for trainings in which a rank that makes no steps would not stay equal."""
    if planning.is_fused:
        reject(
            "join()",
            "fused_update=True",
            "steps behind the backward",
            "Attach with fused_update=False, or give all ranks as many batches.",
        )
    if planning.has_policies:
        reject(
            "join()",
            "policies=",
            "a plan",
            "Attach with a planner instead of policies, or give all ranks as many batches.",
        )
    if planning.averages_gradients:
        reject(
            "join()",
            "a plan of gradients",
            "a plan of parameters",
            "Take a planner of parameters, such as `balanced`, or give all ranks as many batches.",
        )


def check_can_skip(hooks: LoopHooks, engine: Engine) -> None:
    """Raises RuntimeError where an iteration can no longer be left out."""
    if hooks.roll_call is not None:
        raise RuntimeError(
            "DreamDDP.skip_step(): called inside join(), where some ranks may compute no loss. Give all "
            "ranks the same number of batches to use it."
        )
    if engine.awaits_step:
        raise RuntimeError(
            "DreamDDP.skip_step(): called behind a backward, which may have begun to average. Call it "
            "between forward and backward."
        )


def any_says(yes: bool, group: dist.ProcessGroup, doing: str) -> bool:
    """Whether any rank says yes. Collective, and blocks.

    Raises:
        SyncError: where a peer is missing.
    """
    vote = torch.tensor([int(yes)])
    try:
        dist.all_reduce(vote, group=group)
    except RuntimeError as error:
        raise _missing(doing, group, error) from error
    return bool(vote)


class RollCall:
    """In every iteration, each rank says whether it computes: so a rank that has left its loop knows whether
    others still train. Ranks that compute do not wait for the answer.

    Every rank speaks once for each iteration, in order.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._under_way: deque[dist.Work] = deque()
        self.last_announced = -1
        """The last iteration of which this rank has said that it computes it."""

    def announce(self, iteration: int) -> None:
        """This rank computes the iteration; a second call for it says nothing.

        Raises:
            SyncError: where a peer is missing.
        """
        if iteration <= self.last_announced:
            return
        self.last_announced = iteration
        work = dist.all_reduce(torch.tensor([1]), group=self._group, async_op=True)
        assert work is not None
        self._under_way.append(work)
        if len(self._under_way) > MAX_UNDER_WAY:
            try:
                self._under_way.popleft().wait()
            except RuntimeError as error:
                raise _missing(f"beginning iteration {iteration}", self._group, error) from error

    def others_train(self, iteration: int) -> bool:
        """This rank does not compute the iteration: whether another one does. Blocks.

        Raises:
            SyncError: where a peer is missing.
        """
        return any_says(False, self._group, f"waiting in join() for ranks that train (iteration {iteration})")


@contextmanager
def join(hooks: Callable[[], LoopHooks], group: dist.ProcessGroup) -> Iterator[None]:
    """A training loop; behind it, this rank takes part in the averages of those that still train.

    Args:
        hooks: gives those of now; a model that changes is attached to again.
    """
    roll_call = RollCall(group)
    hooks().roll_call = roll_call
    try:
        yield
    finally:
        hooks().roll_call = None
    if hooks().is_inside(roll_call.last_announced):  # after a micro-batch that is not the last, for instance
        hooks().complete_without_data()
    while True:
        hooks().begin_without_data()
        if not roll_call.others_train(hooks().iteration):
            return
        hooks().iterate_without_data()


def _missing(doing: str, group: dist.ProcessGroup, error: RuntimeError) -> SyncError:
    return SyncError(
        f"rank {dist.get_rank(group)}: a peer is missing while {doing}: {str(error).splitlines()[0]}"
    )
