"""What is handed to every rank. Importing this does not import torch; running a job does."""

from __future__ import annotations

from dataclasses import dataclass

from dreamddp.training.config import ProfileConfig, TrainConfig
from dreamddp.training.launcher import RankContext

TIMEOUT_SECONDS = 240.0
"""How long a collective may take, beside what an emulated link adds."""


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """A run, with the text already read."""

    config: TrainConfig
    text: bytes
    timeout_seconds: float
    """How long a collective may take."""


@dataclass(frozen=True, kw_only=True)
class ProfileJob:
    """A measurement, with the text already read."""

    config: ProfileConfig
    text: bytes
    timeout_seconds: float
    """How long a collective may take."""


def train_rank(context: RankContext, job: TrainJob) -> None:
    """One rank of a run; see worker.train()."""
    from dreamddp.training import worker

    worker.train(context, job)


def profile_rank(context: RankContext, job: ProfileJob) -> None:
    """One rank of a measurement; see worker.profile()."""
    from dreamddp.training import worker

    worker.profile(context, job)
