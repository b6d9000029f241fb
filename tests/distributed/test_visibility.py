"""What a running training shows: statistics, scalars, profiler traces and the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from dreamddp import DreamDDP
from dreamddp.tensorboard import write_stats
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.test_cases_checkpoints import HELD, LAYERS


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def iterate(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, iterations: int) -> None:
    for iteration in range(iterations):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()


class Scalars:
    def __init__(self) -> None:
        self.written: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.written.append((tag, scalar_value, global_step))


def write_scalars(rank: int) -> list[tuple[str, float, int]]:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1))
    iterate(rank, model, optimizer, 1)
    sync._engine.finish()
    sync.stats(reset=True)
    scalars = Scalars()
    iterate(rank, model, optimizer, 4)
    sync._engine.finish()
    write_stats(scalars, sync)
    write_stats(scalars, sync)
    return scalars.written


def test_scalars_are_means_per_iteration_since_the_last_write() -> None:
    written = run_ranks(write_scalars, 2)[0]
    names = [tag for tag, _, _ in written]
    count = len(names) // 2
    assert names[:count] == names[count:]
    assert {step for _, _, step in written} == {5}
    values = {tag: value for tag, value, _ in written[:count]}
    num_bytes = 4 * sum(parameter.numel() for parameter in mlp().parameters())
    assert values["dreamddp/iterations"] == 4
    assert values["dreamddp/ops_per_iteration"] == 6
    assert values["dreamddp/bytes_per_iteration"] == num_bytes
    assert "dreamddp/predicted_seconds" not in values  # nothing was measured
    assert values["dreamddp/link_seconds"] > 0
    seconds = values["dreamddp/compute_seconds"] + values["dreamddp/exposed_seconds"]
    assert seconds == pytest.approx(values["dreamddp/iteration_seconds"])
    after_reset = {tag: value for tag, value, _ in written[count:]}
    assert after_reset["dreamddp/ops_per_iteration"] == after_reset["dreamddp/link_seconds"] == 0


def write_to_tensorboard(rank: int, folder: str) -> None:
    from torch.utils.tensorboard import SummaryWriter

    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1))
    iterate(rank, model, optimizer, 3)
    sync.finish()
    with SummaryWriter(f"{folder}/{rank}") as writer:
        write_stats(writer, sync)


def test_scalars_are_read_back_from_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run_ranks(write_to_tensorboard, 2, str(tmp_path))
    events = accumulator.EventAccumulator(str(tmp_path / "0"))
    events.Reload()
    (scalar,) = events.Scalars("dreamddp/ops_per_iteration")
    assert (scalar.step, scalar.value > 0) == (3, True)


def profile_iterations(rank: int) -> dict[str, int]:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1))
    iterate(rank, model, optimizer, 1)
    sync._engine.finish()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        iterate(rank, model, optimizer, 4)
        sync._engine.finish()
    events = profiled.events()
    assert events is not None
    counts: dict[str, int] = {}
    for event in events:
        if event.name.startswith("dreamddp::"):
            counts[event.name] = counts.get(event.name, 0) + 1
    return counts


def test_torch_profiler_shows_waits_and_averages() -> None:
    # Layers 4, 2, 0 in the backward window, then 0, 2, 4 in the forward window.
    labels = [f"op {op}: '{layer}'" for op, layer in enumerate(["4", "2", "0", "0", "2", "4"])]
    wanted = {f"dreamddp::{what} {label}": 4 for what in ("average", "wait") for label in labels}
    assert run_ranks(profile_iterations, 2) == [wanted, wanted]


def log_of(rank: int) -> list[str]:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.getLogger("dreamddp")
    logger.setLevel(logging.INFO)
    logger.addHandler(Lines())
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2))
    iterate(rank, model, optimizer, 3)
    sync.finish()
    return lines


def test_the_log_says_each_thing_once_on_rank_0() -> None:
    first, second = run_ranks(log_of, 2)
    assert first == [
        "rank 0 of 2: attached to Sequential: 3 layers, 6 parameters, 1.9 KiB",
        "rank 0 of 2: plan 'by hand': period 2, 3 ops and 968 B an iteration",
        "rank 0 of 2: all ranks are equal after 3 iterations",
    ]
    assert second == []


def average_momentum(rank: int, average_moments: bool) -> list[float]:
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(["(root)"], period=1))
    (model(torch.full((1, 1), float(1 + 2 * rank)))).sum().backward()  # the gradient is 1 or 3
    optimizer.step()
    sync.finish(average_moments=average_moments)
    return [float(optimizer.state[model.weight]["momentum_buffer"])]


def test_h5_moments_are_local_by_default_and_averaged_on_request() -> None:
    assert run_ranks(average_momentum, 2, False) == [[1.0], [3.0]]
    assert run_ranks(average_momentum, 2, True) == [[2.0], [2.0]]


def average_adam(rank: int) -> dict[str, torch.Tensor]:
    model, _ = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sync = DreamDDP(model, optimizer, plan=HELD)
    iterate(rank, model, optimizer, 5)
    sync._engine.finish()
    before = {k: v.clone() for k, v in optimizer.state[model.get_parameter("2.weight")].items()}
    sync.finish(average_moments=True)
    after = optimizer.state[model.get_parameter("2.weight")]
    return {
        f"{name} {when}": s[name] for name in before for when, s in (("before", before), ("after", after))
    }


def test_h5_first_and_second_moments_become_exact_means() -> None:
    first, second = run_ranks(average_adam, 2)
    for name in ("exp_avg", "exp_avg_sq"):
        mean = (first[f"{name} before"] + second[f"{name} before"]) / 2
        assert not torch.equal(first[f"{name} before"], mean)
        assert torch.equal(first[f"{name} after"], mean)
        assert torch.equal(second[f"{name} after"], mean)
    assert first["step after"] == first["step before"] == 5


def average_unequal_moments(rank: int) -> str:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=HELD)
    if rank == 1:
        model.get_parameter("0.bias").grad = torch.zeros(16)
        optimizer.step()
    with pytest.raises(ValueError) as caught:
        sync.finish(average_moments=True)
    return str(caught.value)


def test_h5_ranks_that_keep_different_moments_are_an_error() -> None:
    message = "ranks disagree on what their optimizers keep: 'momentum_buffer' of parameter 1 of optimizer 0"
    assert all(message in text for text in run_ranks(average_unequal_moments, 2))


def hundred_small_updates(rank: int, dtype: torch.dtype) -> float:
    """Plain SGD with a gradient of 1 and a learning rate of 1e-3, from 1; the forward in bfloat16."""
    model = nn.Linear(1, 1, bias=False).to(dtype)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(["(root)"], period=1))
    for _ in range(100):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.ones(1, 1)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sync.finish()
    return float(model.weight)


def test_h3_bfloat16_weights_lose_small_updates_and_float32_weights_under_autocast_do_not() -> None:
    assert run_ranks(hundred_small_updates, 2, torch.bfloat16) == [1.0, 1.0]
    assert run_ranks(hundred_small_updates, 2, torch.float32) == [pytest.approx(0.9, abs=1e-4)] * 2
