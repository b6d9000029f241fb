"""G5: the slowest rank in a layer counts, and is named."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from torch import nn

from dreamddp import DreamDDP
from dreamddp.profiling import LayerTimes, slow_ranks
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.ranks import run_ranks

SLEEP_SECONDS = 0.05


def measure(rank: int) -> tuple[float, list[str]]:
    torch.manual_seed(0)
    model = mlp()
    assert isinstance(model, nn.Sequential)
    if rank == 1:
        model[2].register_forward_hook(sleep)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sync = DreamDDP(model, optimizer, planner="local-sgd", period=100)
    for iteration in range(7):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        profile = sync.measured_profile()
    sync.detach()
    seconds = next(layer.forward_seconds for layer in profile.layers if layer.name == "2")
    return seconds, [str(warning.message) for warning in caught]


def sleep(module: nn.Module, args: Any, output: Any) -> None:
    time.sleep(SLEEP_SECONDS)


def test_g5_the_profiler_names_the_slowest_rank() -> None:
    (seconds, messages), (other_seconds, other_messages) = run_ranks(measure, 2)
    assert seconds == other_seconds >= SLEEP_SECONDS
    assert any("rank 1 is slow in layer '2'" in message for message in messages)
    assert other_messages == []


def test_a_rank_is_slow_only_where_the_others_would_notice() -> None:
    even = LayerTimes(forward=[1.0, 1.0], backward=[2.0, 2.0], step=0.5)
    assert slow_ranks(["a", "b"], [even, even, even]) == []
    # 0.5 s more than 3 s is less than a fifth.
    assert slow_ranks(["a", "b"], [even, LayerTimes([1.5, 1.0], [2.0, 2.0], 0.5)]) == []
    (line,) = slow_ranks(["a", "b"], [even, even, LayerTimes([1.0, 2.0], [2.0, 2.0], 0.5)])
    assert "rank 2 is slow in layer 'b'" in line
    assert "4.00 s" in line
    # Twice as long, but too little to matter.
    short = LayerTimes([1e-3, 1.0], [0.0, 2.0], 0.5)
    assert slow_ranks(["a", "b"], [short, LayerTimes([2e-3, 1.0], [0.0, 2.0], 0.5)]) == []
    assert slow_ranks(["a"], [even]) == []
