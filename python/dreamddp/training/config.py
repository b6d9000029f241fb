"""What a training run or a profile measurement is asked to do, checked before anything starts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dreamddp._core import reject
from dreamddp.due_layers import PLANNER
from dreamddp.measured_iterations import COLD_ITERATIONS, MIN_ITERATIONS
from dreamddp.planner_names import check_planner
from dreamddp.training.models import MODELS

MAX_WORKERS = 64
PROFILE_ITERATIONS = 15
"""How many iterations of a model are run to measure it."""
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class EmulatedLink:
    """The slow link that a run on one machine pretends to have."""

    bandwidth_bytes_per_second: float
    """Above 0, finite."""
    latency_seconds: float
    """Added to every all-reduce; at least 0."""

    def __post_init__(self) -> None:
        bandwidth, latency = self.bandwidth_bytes_per_second, self.latency_seconds
        if not (math.isfinite(bandwidth) and bandwidth > 0):
            reject("--bandwidth", bandwidth, "a rate above 0", "Give a rate such as 100Mbit/s.")
        if not (math.isfinite(latency) and latency >= 0):
            reject("--latency", latency, "a time of at least 0", "Give a time such as 1ms.")


@dataclass(frozen=True, kw_only=True)
class TorchrunRank:
    """This process's place among the ranks that torchrun started."""

    rank: int
    """From 0 to world_size - 1."""
    world_size: int
    """At least 1."""

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> TorchrunRank | None:
        """The rank that torchrun's variables give, or None where they are not set.

        Raises ValueError where only some of them are set, or one is not a number in range.
        """
        present = [name for name in TORCHRUN_VARIABLES if name in environment]
        if "RANK" not in present and "WORLD_SIZE" not in present:
            return None
        for name in TORCHRUN_VARIABLES:
            if name not in environment:
                reject(
                    f"environment variable {name}",
                    "nothing",
                    f"a value, as {' and '.join(present)} are set",
                    "Start with torchrun, or unset them to start workers on this machine.",
                )
        world_size = _variable(environment, "WORLD_SIZE", 1, None)
        _variable(environment, "MASTER_PORT", 1, 65535)
        return TorchrunRank(rank=_variable(environment, "RANK", 0, world_size - 1), world_size=world_size)


def _variable(environment: Mapping[str, str], name: str, lowest: int, highest: int | None) -> int:
    text = environment[name]
    allowed = f"a whole number from {lowest}" + (f" to {highest}" if highest is not None else "")
    try:
        value = int(text)
    except ValueError:
        reject(f"environment variable {name}", repr(text), allowed, "Start with torchrun, which sets it.")
    if value < lowest or (highest is not None and value > highest):
        reject(f"environment variable {name}", value, allowed, "Start with torchrun, which sets it.")
    return value


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run of `dreamddp train`. Invalid values raise ValueError naming the flag."""

    model: str = "gpt2-tiny"
    """A name in `models.MODELS`."""
    data: Path | None = None
    """A file or a folder of text; None: the source files of Python's own standard library."""
    workers: int = 2
    """K, the number of ranks; at least 2."""
    planners: tuple[str, ...] = ("ddp", "local-sgd", "balanced")
    """What to train with, in turn; `ddp` is PyTorch's own DistributedDataParallel."""
    policies: str | None = None
    """Policies (JSON) to train with, too, behind the planners; None: none."""
    period: int | None = None
    """H, at least 1; None: chosen from the profile and the link."""
    link: EmulatedLink | None = None
    """The emulated link; None: the real one, measured before training."""
    steps: int = 100
    """Optimizer steps for each planner; at least 1."""
    batch_size: int = 4
    """Sequences per rank and step; at least 1."""
    seed: int = 0
    """Of the initial weights and of the batches; at least 0."""
    learning_rate: float = 1e-3
    """Of AdamW; above 0."""
    output: Path
    """The run folder."""

    @property
    def methods(self) -> tuple[str, ...]:
        """What is trained with, in turn: the planners, then the policies."""
        return (*self.planners, PLANNER) if self.policies is not None else self.planners

    def __post_init__(self) -> None:
        check_model(self.model)
        if not 2 <= self.workers <= MAX_WORKERS:
            reject(
                "--workers",
                self.workers,
                f"a number from 2 to {MAX_WORKERS}",
                "Give 2 or more: one worker has nobody to average with.",
            )
        check_planners(self.planners)
        if self.period is not None and self.period < 1:
            reject("--period", self.period, "a number of at least 1, or auto", "Give auto to have it chosen.")
        if self.steps < 1:
            reject("--steps", self.steps, "a number of at least 1", "Give 100 for a short run.")
        check_batch(self.batch_size, self.seed)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            reject("--learning-rate", self.learning_rate, "a number above 0", "Give a rate such as 1e-3.")


@dataclass(frozen=True, kw_only=True)
class ProfileConfig:
    """One run of `dreamddp profile`. Invalid values raise ValueError naming the flag."""

    model: str = "gpt2-tiny"
    """A name in `models.MODELS`."""
    data: Path | None = None
    """As in TrainConfig."""
    workers: int = 1
    """Ranks that run at the same time; at least 1. The slowest one counts, layer by layer."""
    real_link: bool = False
    """Whether torchrun started the ranks: then the link between them is measured too."""
    iterations: int = PROFILE_ITERATIONS
    """How many are run; at least MIN_ITERATIONS, as the first ones are cold and do not count."""
    batch_size: int = 4
    """Sequences per rank and iteration; at least 1."""
    seed: int = 0
    """Of the weights and of the batches; at least 0."""

    def __post_init__(self) -> None:
        check_model(self.model)
        if not 1 <= self.workers <= MAX_WORKERS:
            reject(
                "--workers", self.workers, f"a number from 1 to {MAX_WORKERS}", "Give 1 for a model alone."
            )
        if self.iterations < MIN_ITERATIONS:
            reject(
                "--iterations",
                self.iterations,
                f"a number of at least {MIN_ITERATIONS}",
                f"Run more: the first {COLD_ITERATIONS} are cold and do not count.",
            )
        check_batch(self.batch_size, self.seed)


def check_model(name: str) -> None:
    """Raises ValueError where there is no model of that name."""
    if name not in MODELS:
        reject("--model", repr(name), f"one of {', '.join(MODELS)}", "Take one of them.")


def check_batch(batch_size: int, seed: int) -> None:
    """Raises ValueError where the batch size or the seed is out of range."""
    if batch_size < 1:
        reject("--batch-size", batch_size, "a number of at least 1", "Give 1 for the smallest batch.")
    if seed < 0:
        reject("--seed", seed, "a number of at least 0", "Give 0 for the default.")


def check_planners(names: tuple[str, ...]) -> None:
    """Raises ValueError where there are none, one is unknown, or one is given twice."""
    if not names:
        reject("--planners", "none", "at least one planner", "Give names such as ddp,local-sgd,balanced.")
    for name in names:
        check_planner(name, "--planners")
        if names.count(name) > 1:
            reject("--planners", f"{name!r} twice", "each planner once", "Leave one of them out.")
