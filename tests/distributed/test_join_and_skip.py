"""Ranks that run out of data, and iterations that are left out."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, Layer, Plan, Profile, SyncError
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan, early_window_plan, forward_window_plan
from tests.distributed.ranks import RanksFailed, run_ranks
from tests.distributed.reference import run_reference
from tests.distributed.test_cases_checkpoints import CARRIED, HELD, LAYERS, OVERLAPPING, State

PLANS = {
    "both-windows": both_windows_plan(LAYERS, period=3),
    "early-window": early_window_plan(LAYERS, early="0"),
    "forward-window": forward_window_plan(LAYERS),
    "held": HELD,
    "carried": CARRIED,
    "carried-overlapping": OVERLAPPING,
}


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_uneven(rank: int, batches: list[int], plan_name: str) -> tuple[State, State, int]:
    """The state behind the loop, with averages under way ended; that behind finish(); iterations."""
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=PLANS[plan_name])
    with sync.join():
        for iteration in range(batches[rank]):
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()
    sync._engine.finish()
    joined = {key: value.clone() for key, value in model.state_dict().items()}
    sync.finish()
    return joined, model.state_dict(), sync.iteration


def reference(batches: list[int], plan: Plan) -> list[State]:
    """A worker without data has no gradients, so that its steps change nothing."""
    profile = Profile([Layer(name, num_bytes=4) for name in LAYERS])
    pairs = [build() for _ in batches]
    models = [model for model, _ in pairs]

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        if iteration < batches[rank]:
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()

    run_reference(
        models, [optimizer for _, optimizer in pairs], compute_gradients, plan, profile, max(batches)
    )
    return [model.state_dict() for model in models]


@pytest.mark.parametrize("plan", sorted(PLANS))
@pytest.mark.parametrize("batches", [[10, 8], [8, 10]])
def test_a7_a_rank_without_data_takes_part_with_its_own_values(plan: str, batches: list[int]) -> None:
    results = run_ranks(train_uneven, 2, batches, plan)
    for (joined, finished, iterations), wanted in zip(results, reference(batches, PLANS[plan]), strict=True):
        assert iterations == 10
        for key, value in wanted.items():
            assert torch.equal(joined[key], value), key
            assert torch.equal(finished[key], results[0][1][key]), key


@pytest.mark.parametrize("batches", [[6, 0, 3], [0, 6, 3], [0, 0, 0], [4, 4, 4]])
def test_a7_ranks_without_any_data(batches: list[int]) -> None:
    results = run_ranks(train_uneven, 3, batches, "both-windows")
    for _, finished, iterations in results:
        assert iterations == max(batches)
        for key, value in finished.items():
            assert torch.equal(value, results[0][1][key]), key


def train_uneven_with_planner(rank: int, batches: list[int]) -> tuple[str, State]:
    """Measuring ends, and the plan is made, while rank 1 has no data left."""
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, planner="equal-count", period=2, profile_iterations=6)
    with sync.join():
        for iteration in range(batches[rank]):
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()
    sync.finish()
    assert sync.plan is not None
    return sync.plan.planner, model.state_dict()


def test_a7_the_plan_is_made_without_the_rank_that_has_no_data() -> None:
    (plan, first), (other_plan, second) = run_ranks(train_uneven_with_planner, 2, [10, 4])
    assert plan == other_plan == "equal-count"
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def accumulate_uneven(rank: int, micro_batches: list[int]) -> tuple[State, int]:
    """Three micro-batches an iteration; the last window of a rank may be incomplete."""
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2))
    with sync.join():
        for index in range(micro_batches[rank]):
            last = index % 3 == 2
            with nullcontext() if last else sync.no_sync():
                loss_of("mlp", model, batch_for("mlp", rank, index)).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
    sync.finish()
    return model.state_dict(), sync.iteration


@pytest.mark.parametrize(
    ("micro_batches", "iterations"), [([12, 9], 4), ([12, 7], 4), ([10, 6], 4), ([4, 5], 2)]
)
def test_a7_join_counts_iterations_not_micro_batches(micro_batches: list[int], iterations: int) -> None:
    (first, count), (second, other_count) = run_ranks(accumulate_uneven, 2, micro_batches)
    assert count == other_count == iterations
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def skip_last_step(rank: int) -> tuple[State, int]:
    """A loss scaler skips the last step of the rank that has more data; then both loops end."""
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=forward_window_plan(LAYERS))
    with sync.join():
        for iteration in range(6 - rank):
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            if iteration != 5 - rank:
                optimizer.step()
            optimizer.zero_grad()
    sync.finish()
    return model.state_dict(), sync.iteration


def test_a7_an_iteration_without_a_step_is_ended() -> None:
    (first, count), (second, other_count) = run_ranks(skip_last_step, 2)
    assert count == other_count == 6
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def raise_inside_join(rank: int) -> str:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=PLANS["both-windows"], timeout=2.0)
    try:
        with sync.join():
            for iteration in range(4):
                if rank == 1 and iteration == 2:
                    raise KeyError("bad data")
                loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
                optimizer.step()
    except (KeyError, SyncError) as error:
        return type(error).__name__
    return "nothing"


def test_a7_an_exception_leaves_join_at_once() -> None:
    assert run_ranks(raise_inside_join, 2) == ["SyncError", "KeyError"]


def join_with_gradients(rank: int) -> str:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, planner="ssgd", period=1)
    with pytest.raises(ValueError) as caught, sync.join():
        pass
    return str(caught.value)


def test_join_is_refused_where_gradients_are_averaged() -> None:
    assert "Take a planner of parameters" in run_ranks(join_with_gradients, 2)[0]


def skip_together(rank: int, plan: str, bad_batch: int, is_left_out: bool) -> tuple[State, list[int], int]:
    """Rank 1 has a bad batch: the iterations that this rank has skipped. Or all do as if it had not been
    there."""
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=PLANS[plan])
    skipped = []
    for batch in range(12):
        if is_left_out and batch == bad_batch:
            continue
        loss = loss_of("mlp", model, batch_for("mlp", rank, batch))
        if sync.skip_step(rank == 1 and batch == bad_batch):
            skipped.append(batch)
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    return model.state_dict(), skipped, sync.iteration


@pytest.mark.parametrize("batch", [0, 7])
@pytest.mark.parametrize("plan", ["both-windows", "forward-window", "held", "carried"])
def test_a4_all_ranks_skip_together(plan: str, batch: int) -> None:
    results = run_ranks(skip_together, 2, plan, batch, False)
    expected = run_ranks(skip_together, 2, plan, batch, True)
    for (state, skipped, iteration), (wanted, _, _) in zip(results, expected, strict=True):
        assert skipped == [batch]
        assert iteration == 11
        for key, value in wanted.items():
            assert torch.equal(state[key], value), key


def skip_behind_early_launch(rank: int, batch: int) -> tuple[State, int, int]:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=PLANS["early-window"])
    for iteration in range(10):
        loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))
        if sync.skip_step(rank == 0 and iteration == batch):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sync.finish()
    return model.state_dict(), sync.iteration, sync._engine.statistics().ops


@pytest.mark.parametrize("batch", [0, 7])
def test_a4_an_average_that_began_in_the_forward_is_carried_out_once(batch: int) -> None:
    """That of the first layer begins at the end of its forward, before the batch turns out bad."""
    (first, iteration, ops), (second, _, _) = run_ranks(skip_behind_early_launch, 2, batch)
    assert (iteration, ops) == (9, 18)
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def skip_wrongly(rank: int) -> list[str]:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=PLANS["both-windows"])
    messages = []
    loss_of("mlp", model, batch_for("mlp", rank, 0)).backward()
    with pytest.raises(RuntimeError) as caught:
        sync.skip_step(True)
    messages.append(str(caught.value))
    optimizer.step()
    with sync.join(), pytest.raises(RuntimeError) as caught:
        sync.skip_step(True)
    return [*messages, str(caught.value)]


def test_skip_step_in_the_wrong_place_is_an_error() -> None:
    after_backward, inside_join = run_ranks(skip_wrongly, 2)[0]
    assert "Call it between forward and backward" in after_backward
    assert "called inside join()" in inside_join


def skip_alone(rank: int) -> None:
    model, optimizer = build()
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1), timeout=2.0)
    for iteration in range(10):
        if rank == 1 and iteration == 7:
            continue
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()


def test_a4_without_the_call_it_is_a_timely_error() -> None:
    with pytest.raises(RanksFailed) as caught:
        run_ranks(skip_alone, 2, timeout=30.0)
    assert all("SyncError" in text for text in caught.value.failures.values())
    assert "rank 0: averaging" in caught.value.failures[0]
    assert "step 9" in caught.value.failures[0]
