"""Profiles and links, measured on the machines at hand. Design sections 4 and 8."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from dreamddp._core import LastRead, LastReadKind, Layer, Link, Profile, format_seconds, reject
from dreamddp.agreement import gather
from dreamddp.group import communication_device, explained
from dreamddp.layers import LOOP, ModelLayer
from dreamddp.measured_iterations import COLD_ITERATIONS, MIN_ITERATIONS
from dreamddp.reads import ReadOrder

if TYPE_CHECKING:
    from dreamddp._runtime import IterationTimes

REPETITIONS = 4
"""Of an all-reduce that is timed; the first one does not count."""
SMALL_REPETITIONS = 9
"""Of the smallest one, of which the fastest counts."""


def untimed_profile(
    order: ReadOrder, layers: Sequence[ModelLayer], names: Sequence[str] | None = None
) -> Profile:
    """The agreed reads as a profile without times.

    Args:
        names: layers and their order, where a plan dictates them; else the loop and then the order of first
            reads.

    Raises:
        ValueError: naming layers that the model has and `names` lacks.
    """
    sizes = {layer.name: layer.num_bytes for layer in layers}
    listed = list(names) if names is not None else [LOOP, *order.forward]
    missing = [name for name in sizes if name not in listed]
    if missing:
        reject(
            "layers of the plan",
            f"none named {', '.join(missing)}",
            "all layers of the model that have trainable parameters",
            "Make the plan from a profile of this model.",
        )
    index = {name: i for i, name in enumerate(listed)}
    profile_layers = []
    for name in listed:
        reads = order.layers.get(name)
        last_read = LastRead(LastReadKind.own_backward)
        if reads is not None and reads.last_read == "forward":
            last_read = LastRead(LastReadKind.forward)
        elif reads is not None and isinstance(reads.last_read, tuple) and reads.last_read[1] in index:
            last_read = LastRead(LastReadKind.other_backward, index[reads.last_read[1]])
        profile_layers.append(Layer(name, num_bytes=sizes.get(name, 0), last_read=last_read))
    backward = [index[name] for name in order.backward if name in index]
    others = [i for i in reversed(range(len(listed))) if i not in set(backward)]
    backward += others
    if backward == list(reversed(range(len(listed)))):
        backward = []
    return Profile(profile_layers, backward_order=backward)


@dataclass(frozen=True)
class LayerTimes:
    """One rank's times: medians over iterations, in seconds."""

    forward: list[float]
    backward: list[float]
    step: float


def median_times(samples: Sequence[IterationTimes]) -> LayerTimes:
    """Medians over iterations; the loop's own times go to layer 0.

    Raises:
        ValueError: for no samples.
    """
    if not samples:
        reject(
            "measured iterations",
            "none",
            "at least one complete one",
            "Run forward, backward and step before profiling ends.",
        )
    forward = [
        statistics.median(values) for values in zip(*(s.forward_seconds for s in samples), strict=True)
    ]
    backward = [
        statistics.median(values) for values in zip(*(s.backward_seconds for s in samples), strict=True)
    ]
    forward[0] += statistics.median(s.loop_before_seconds for s in samples)
    backward[0] += statistics.median(s.loop_after_seconds for s in samples)
    return LayerTimes(forward, backward, statistics.median(s.step_seconds for s in samples))


def slow_ranks(names: Sequence[str], times: Sequence[LayerTimes]) -> list[str]:
    """One line for each layer in which one rank holds all others up: it takes a fifth longer than the median
    of the others, and by more than 2% of an iteration and a millisecond, as less is noise."""
    if len(times) < 2:
        return []
    lines = []
    iteration_seconds = statistics.median(sum(t.forward) + sum(t.backward) + t.step for t in times)
    for index, name in enumerate(names):
        seconds = [t.forward[index] + t.backward[index] for t in times]
        rank = max(range(len(seconds)), key=seconds.__getitem__)
        others = statistics.median(seconds[:rank] + seconds[rank + 1 :])
        if seconds[rank] > max(1.2 * others, others + max(0.02 * iteration_seconds, 1e-3)):
            lines.append(
                f"rank {rank} is slow in layer '{name}': {format_seconds(seconds[rank])} an iteration, "
                f"against {format_seconds(others)} on the others, which wait for it"
            )
    return lines


def slowest(profile: Profile, times: Sequence[LayerTimes]) -> Profile:
    """The profile with the times of the slowest rank in each layer."""
    layers = []
    for index, layer in enumerate(profile.layers):
        layers.append(
            Layer(
                layer.name,
                forward_seconds=max(t.forward[index] for t in times),
                backward_seconds=max(t.backward[index] for t in times),
                num_bytes=layer.num_bytes,
                last_read=layer.last_read,
            )
        )
    return Profile(layers, step_seconds=max(t.step for t in times), backward_order=profile.backward_order)


def measure_link(group: dist.ProcessGroup, device: torch.device | None = None) -> Link:
    """Times all-reduces of several sizes and fits latency and bandwidth. Collective; all ranks get the same.

    The slowest rank counts for each size. Takes about two seconds at 10 MB/s.

    Raises:
        SyncError: where a peer is missing.
    """
    workers = dist.get_world_size(group)
    if workers == 1:
        return Link(bandwidth_bytes_per_second=1e12, latency_seconds=0.0, workers=1)
    sizes = [1 << 12, 1 << 18, 1 << 20, 1 << 22]
    points: list[tuple[int, float]] = []
    for size in sizes:
        tensor = torch.zeros(size // 4, device=communication_device(group, device or torch.device("cpu")))
        durations = []
        for _ in range(SMALL_REPETITIONS if size == sizes[0] else REPETITIONS):
            with explained("measuring the link"):
                dist.barrier(group)
                begin = time.perf_counter()
                dist.all_reduce(tensor, group=group)
                if tensor.device.type != "cpu":
                    torch.accelerator.synchronize(tensor.device)
            durations.append(time.perf_counter() - begin)
        # What disturbs a small all-reduce is longer than itself, and never makes it faster.
        typical = min(durations) if size == sizes[0] else statistics.median(durations[1:])
        slowest_rank = max(gather(typical, group, "measuring the link"))
        points.append((size, slowest_rank))
        if slowest_rank > 0.5:
            break
    return fit_link(points, workers)


def fit_link(points: Sequence[tuple[int, float]], workers: int) -> Link:
    """Latency and bandwidth from (bytes, seconds) of all-reduces, the smallest first.

    The slope between the smallest and the largest size gives the bandwidth, what the smallest takes beyond
    that the latency: small sizes are exact about latency, large ones about bandwidth, and a least-squares fit
    through both would let the error of the largest hide the latency.
    """
    (small, small_seconds), (large, large_seconds) = points[0], points[-1]
    per_byte = max((large_seconds - small_seconds) / (large - small), 1e-13)
    ring = 2 * (workers - 1) / workers
    return Link(
        bandwidth_bytes_per_second=ring / per_byte,
        latency_seconds=max(small_seconds - small * per_byte, 0.0),
        workers=workers,
    )


def measure_profile(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    run_iteration: Callable[[], Any],
    *,
    iterations: int = 12,
    process_group: dist.ProcessGroup | None = None,
) -> Profile:
    """Measures the layers of a model in real iterations, without communication. Collective.

    Args:
        run_iteration: runs forward, backward and step on one batch, as in training.
        iterations: how many to run; the first ones are cold and do not count.

    Returns:
        The agreed profile, the same on all ranks: the slowest rank in each layer. Model, buffers, optimizer
        and torch's random state of the CPU are as before the call; gradients are those of the last iteration.

    Raises:
        ValueError: for fewer than MIN_ITERATIONS.
    """
    from dreamddp.engine import DreamDDP

    if iterations < MIN_ITERATIONS:
        reject(
            "iterations",
            iterations,
            f"at least {MIN_ITERATIONS}",
            f"Run more: the first {COLD_ITERATIONS} are cold and do not count.",
        )
    model_state = copy.deepcopy(model.state_dict())
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    random_state = torch.get_rng_state()
    sync = DreamDDP(
        model, optimizer, period=iterations + 1, planner="local-sgd", process_group=process_group, link=Link()
    )
    try:
        for _ in range(iterations):
            run_iteration()
        return sync.measured_profile()
    finally:
        sync.detach()
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
        torch.set_rng_state(random_state)
