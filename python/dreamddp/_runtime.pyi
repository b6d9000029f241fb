"""The engine that carries plans out, and the emulated link. Needs torch; see src/runtime."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

PendingOp = tuple[int, int, list[torch.Tensor], list[torch.Tensor]]
PolicyState = tuple[str, list[tuple[torch.Tensor, list[float], int]], torch.Tensor | None]
_Decision = tuple[bool, str, float, float, str, float | None, float | None]

class IterationTimes:
    """Compute times of one iteration, in seconds."""

    @property
    def forward_seconds(self) -> list[float]: ...
    @property
    def backward_seconds(self) -> list[float]: ...
    @property
    def step_seconds(self) -> float: ...
    @property
    def loop_before_seconds(self) -> float: ...
    @property
    def loop_after_seconds(self) -> float: ...

class TrainingStatistics:
    """Sums since the last reset."""

    @property
    def iterations(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def exposed_seconds(self) -> float: ...
    @property
    def link_seconds(self) -> float: ...
    @property
    def ops(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...

class Engine:
    """Carries a plan out in a running training."""

    def __init__(
        self,
        layers: Sequence[tuple[str, Sequence[torch.Tensor], Sequence[torch.Tensor]]],
        process_group: dist.ProcessGroup,
        *,
        staging_bytes: int,
        timeout_seconds: float,
        attachment: int = 0,
    ) -> None:
        """Layers are name, trainable parameters and running statistics. The group is the engine's alone: no
        other collective may run on it while a plan is carried out."""
    def attach(self) -> None:
        """Hooks the gradients. Until set_plan() nothing is communicated."""
    def set_repeated(self, layers: Sequence[int]) -> None:
        """Gradients of these layers come more than once in a backward; they join at its end."""
    def detach(self) -> None:
        """Removes the hooks. Ops in flight go on; finish() first waits for them."""
    def close(self) -> None:
        """Removes the hooks and drops what is under way, for the end of the process.

        Blocks for a moment at most, without the GIL. Other methods do nothing afterwards.
        """
    def on_unplanned_backward(self, callback: Callable[[], None]) -> None:
        """Has it called at the end of final backwards, on their thread, while there is no plan."""
    def on_layer_update(self, callback: Callable[[int], None]) -> None:
        """Has it called in final backwards, on their threads and one at a time, to step the layer with this
        index: when its gradients are complete, or at the end of the backward. Not while there is no plan."""
    def set_plan(
        self,
        plan: str,
        profile: str,
        *,
        first_iteration: int,
        after_backward: bool,
        pending: Sequence[PendingOp] = (),
    ) -> None:
        """Carries out a plan (JSON) for a profile (JSON) from now on, and writes what is pending.

        Blocks while ops of the plan before end, without the GIL. Raises ValueError for a plan that is not
        valid for the profile and a profile that lacks layers of the model, and SyncError
        where an op fails.
        """
    def set_policy(
        self,
        policies: str,
        profile: str,
        link: tuple[float | None, float, int, int],
        *,
        slack: float,
        sketch_size: int,
        state: PolicyState | None = None,
    ) -> None:
        """Lets policies (JSON) decide from the next final backward on, in the layers of the profile (JSON).

        link: bandwidth, latency, ops in flight, workers. The plan that is set has no ops. Raises ValueError
        for policies that do not fit the layers, and for another state.
        """
    def policy_state(self) -> PolicyState:
        """What the policies go on from. Blocks for what is being agreed on, without the GIL."""
    def all_are_averaged(self) -> None:
        """To the policies, all layers are fresh."""
    def staleness(self) -> list[int]:
        """Before a step: of each layer, the local steps since its last average; empty without policies."""
    def decisions(self, first_iteration: int = 0) -> list[tuple[int, list[_Decision]]]:
        """Iterations, and of each layer: whether due, rule, value, limit, treatment, similarity, norm."""
    def pending(self) -> list[PendingOp]:
        """Held and carried ops in flight between two iterations: op, iteration, means and snapshots.

        Blocks, without the GIL; changes no value of the training. Raises SyncError after a failed op.
        """
    def forward_pre_hook(self, layers: Sequence[int]) -> Callable[..., None]:
        """A module's forward pre-hook: blocks until the layers may be read, without the GIL.

        It raises SyncError after a failed op.
        """
    def forward_hook(self, layers: Sequence[int]) -> Callable[..., None]:
        """A module's forward hook: the layers have been read for the last time.

        Blocks, without the GIL, where held or carried means must be written before an op is launched; raises
        SyncError after a failed op.
        """
    def forward_starts(self) -> None:
        """The model's forward begins, with gradients. Blocks for what it needs; raises SyncError."""
    def module_begins(self) -> None:
        """A module is about to run, while there is no plan. Blocks where a backward begins and policies
        decide; raises SyncError."""
    def forward_finishes(self) -> None:
        """The model's forward has ended. Never blocks."""
    def backward_without_data(self) -> None:
        """A final backward of a rank that has no data left. Blocks where gradients are averaged; raises
        SyncError."""
    def reader_backward_ends(self, layer: int) -> None:
        """The backward of a layer that reads another one's tensor has ended.

        Blocks like forward_hook(); raises SyncError after a failed op.
        """
    def step_begins(self) -> None:
        """The optimizer is about to step: blocks for the ops that must end before, without the GIL.

        Raises SyncError after a failed op.
        """
    def step_ends(self) -> None:
        """The optimizer has stepped. Blocks like forward_hook(); raises SyncError after a failed op."""
    def finish(self) -> None:
        """Blocks until nothing is in flight, on a GPU until it is done there, without the GIL.

        Raises SyncError after a failed op.
        """
    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Averages floating-point tensors over all ranks, in place. Collective; no op may be in flight.

        Blocks, without the GIL. Raises SyncError where a peer is missing.
        """
    def set_paused(self, is_paused: bool) -> None:
        """While paused, other ranks wait for this one beyond their timeout. Never blocks."""
    def meet(self, doing: str) -> None:
        """Blocks until all ranks have called this as often, without the GIL and without the process group.

        Raises SyncError where a rank does not come within the timeout, or has failed.
        """
    def rest(self) -> None:
        """Nobody waits for this rank until it launches an op again. Never blocks."""
    @property
    def has_failed(self) -> bool:
        """Whether an op of the plan has failed: what blocks then raises SyncError."""
    def set_no_sync(self, active: bool) -> None:
        """While active, backwards are not the last of their iteration. Never blocks."""
    @property
    def iteration(self) -> int:
        """The plan's, counted from the start of training; 0 before set_plan()."""
    @property
    def awaits_step(self) -> bool:
        """Whether a final backward has ended since the last step, so that a step belongs to it."""
    def set_sampling(self, active: bool) -> None:
        """Whether compute times are measured."""
    def take_samples(self) -> list[IterationTimes]:
        """Compute times of the iterations since the last call, in the profile's layers. Waits for the GPU."""
    def record(self, num_iterations: int) -> None:
        """Records the spans of the next iterations. Waits for the GPU."""
    def spans(self) -> list[tuple[int, str, int, int, float, float]]:
        """Those recorded so far: kind, name, rank, iteration, begin, end, on time.monotonic(). Waits for
        the GPU."""
    def statistics(self) -> TrainingStatistics: ...
    def reset_statistics(self) -> None: ...

class ParameterWatch:
    """Whether parameters are still what they were: trained or not, dtype, device, shape, strides, and the
    node that accumulates the gradient. Values and storage may change."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None: ...
    def first_changed(self) -> int | None:
        """Index of the first parameter that is no longer what it was. Cheap enough for every iteration."""

class ContentsWatch:
    """Whether dictionaries still hold the same objects in the same order."""

    def __init__(self, dictionaries: Sequence[dict[str, Any]]) -> None: ...
    @property
    def has_changed(self) -> bool: ...

class LinkStatistics:
    """What an emulated link of this process has carried."""

    @property
    def ops(self) -> int:
        """Number of collectives."""
    @property
    def num_bytes(self) -> int:
        """Sum of their tensors' bytes: what was averaged or sent, not the traffic of a ring."""
    @property
    def busy_seconds(self) -> float:
        """Time in which the link was taken, without latencies."""

class LinkBooking:
    """A collective on the link. Times are nanoseconds of the machine's steady clock."""

    @property
    def collective(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def ready(self) -> int:
        """When the last rank had launched it and no rank's link was taken by other groups."""
    @property
    def jitter(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def transfer(self) -> int:
        """The time for which it took the link."""
    @property
    def finish(self) -> int: ...

class EmulatedLink:
    """A link clock of this process."""

    def __init__(
        self,
        *,
        bandwidth_bytes_per_second: float,
        latency_seconds: float,
        in_flight: int,
        jitter_seconds: float,
        seed: int,
    ) -> None: ...
    def statistics(self) -> LinkStatistics: ...
    def recent(self) -> list[LinkBooking]:
        """The latest 4096 collectives, oldest first."""
    def close(self) -> None:
        """Fails collectives under way and later ones, and ends the link's thread."""
    def backend(
        self, wrapped: dist.ProcessGroupGloo | dist.Backend, timeout: timedelta, name: str
    ) -> dist.Backend:
        """A backend whose collectives are carried out by `wrapped` and take the time that this link needs."""

default_sketch_size: int

class GradientStatistic:
    """Of one layer in one iteration; NaN where there is nothing to compare with."""

    @property
    def norm(self) -> float: ...
    @property
    def last_average_similarity(self) -> float:
        """Cosine with the gradient of the last average."""
    @property
    def lag_similarities(self) -> list[float]:
        """Of each lag, the cosine with the gradient so many iterations ago."""

class GradientStatistics:
    """How the gradients of layers turn from iteration to iteration."""

    def __init__(
        self,
        layers: Sequence[Sequence[torch.Tensor]],
        *,
        lags: Sequence[int] = ...,
        with_last_average: bool = True,
        sketch_size: int = ...,
    ) -> None: ...
    def observe(self, layer: int, *, is_averaged: bool) -> None:
        """Compares the gradient of the layer, which is complete, with the earlier ones."""
    def iteration_ends(self) -> None: ...
    def __getitem__(self, layer: int) -> GradientStatistic: ...
    def __len__(self) -> int: ...
    @property
    def memory_bytes(self) -> int:
        """What earlier gradients, or their sketches, take."""
    def state(self, layer: int) -> tuple[torch.Tensor, list[float], int]: ...
    def set_state(
        self, layer: int, rows: torch.Tensor, norms: Sequence[float], num_iterations: int
    ) -> None: ...
