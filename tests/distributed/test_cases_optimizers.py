"""Optimizers, schedulers, loss scalers and accumulation, as people combine them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from dreamddp import DreamDDP, Layer, Profile
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.reference import run_reference

State = dict[str, torch.Tensor]
LAYERS = ["0", "2", "4"]
PROFILE = Profile([Layer(name, num_bytes=4) for name in LAYERS])


def state_of(model: nn.Module) -> State:
    return {key: value.clone() for key, value in model.state_dict().items()}


def assert_equal(states: list[State], wanted: list[State]) -> None:
    for state, reference in zip(states, wanted, strict=True):
        assert state.keys() == reference.keys()
        for key, value in state.items():
            assert torch.equal(value, reference[key]), key


def build() -> nn.Module:
    torch.manual_seed(0)
    return mlp()


def scale_loss(rank: int) -> tuple[State, list[bool], int]:
    """Rank 1 overflows at iteration 3."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2), timeout=20.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    stepped = []
    for iteration in range(8):
        loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))
        if rank == 1 and iteration == 3:
            loss = loss * torch.inf
        before = state_of(model)["4.bias"]
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        found_inf = any(not p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        stepped.append(not found_inf)
        assert before.isfinite().all()
    sync.finish()
    return state_of(model), stepped, sync._engine.statistics().ops


def test_c3_a_loss_scaler_skips_on_one_rank() -> None:
    (first, first_stepped, first_ops), (second, second_stepped, second_ops) = run_ranks(scale_loss, 2)
    assert first_stepped == [True] * 8
    assert second_stepped == [iteration != 3 for iteration in range(8)]
    assert first_ops == second_ops
    assert_equal([first], [second])


BATCHES = 10
EVERY = 4


def accumulate_epochs(rank: int, flushes: bool) -> tuple[State, int]:
    """Two epochs; the last window of each has 2 micro-batches instead of 4. Either it is stepped like the
    others, or it stays under no_sync() and a step flushes it."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2), timeout=20.0)
    for epoch in range(2):
        for index in range(BATCHES):
            ends_window = (index + 1) % EVERY == 0 or (index + 1 == BATCHES and not flushes)
            loss = loss_of("mlp", model, batch_for("mlp", rank, BATCHES * epoch + index)) / EVERY
            if ends_window:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                with sync.no_sync():
                    loss.backward()
        if flushes:
            optimizer.step()
            optimizer.zero_grad()
    places = sync.iteration
    sync._engine.finish()
    state = state_of(model)
    sync.finish()
    final = state_of(model)
    return (final if flushes else state), places


def accumulated_gradients(rank: int, model: nn.Module, iteration: int) -> None:
    epoch, window = divmod(iteration, 3)
    for index in range(EVERY * window, min(EVERY * (window + 1), BATCHES)):
        (loss_of("mlp", model, batch_for("mlp", rank, BATCHES * epoch + index)) / EVERY).backward()


def test_c6_the_last_window_of_an_epoch_is_incomplete() -> None:
    models = [build(), build()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    run_reference(models, optimizers, accumulated_gradients, both_windows_plan(LAYERS, period=2), PROFILE, 6)
    results = run_ranks(accumulate_epochs, 2, False)
    assert [places for _, places in results] == [6, 6]
    assert_equal([state for state, _ in results], [model.state_dict() for model in models])


def test_c6_the_last_window_of_an_epoch_is_flushed() -> None:
    (first, places), (second, _) = run_ranks(accumulate_epochs, 2, True)
    assert places == 4
    assert_equal([first], [second])


def accumulate_without_no_sync(rank: int, micro_batches: int) -> tuple[State, int, list[str]]:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1), timeout=20.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for iteration in range(6):
            for index in range(micro_batches):
                loss_of("mlp", model, batch_for("mlp", rank, micro_batches * iteration + index)).backward()
            if micro_batches > 1 or iteration not in (0, 1, 3):  # skipped, as by a loss scaler
                optimizer.step()
            optimizer.zero_grad()
    places = sync.iteration
    sync.finish()
    return state_of(model), places, [str(w.message) for w in caught if "DreamDDP" in str(w.message)]


def test_accumulation_without_no_sync_is_a_warning() -> None:
    (first, places, messages), (second, _, _) = run_ranks(accumulate_without_no_sync, 2, 3)
    assert places == 18
    assert len(messages) == 1
    assert "3 backwards come before each step" in messages[0]
    assert "put all but the last under no_sync()" in messages[0]
    assert_equal([first], [second])
    # Skipped steps are none.
    assert run_ranks(accumulate_without_no_sync, 1, 1)[0][2] == []


def train_by_functional_gradients(rank: int, begins_with_backward: bool) -> list[str]:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1), timeout=20.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for iteration in range(8):
            loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))
            if begins_with_backward and iteration < 2:
                loss.backward()
            else:
                gradients = torch.autograd.grad(loss, list(model.parameters()))
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.grad = gradient
            optimizer.step()
            optimizer.zero_grad()
    sync.finish()
    return [str(w.message) for w in caught if "DreamDDP" in str(w.message)]


@pytest.mark.parametrize("begins_with_backward", [False, True])
def test_steps_whose_gradients_the_engine_does_not_see_are_a_warning(begins_with_backward: bool) -> None:
    for messages in run_ranks(train_by_functional_gradients, 2, begins_with_backward):
        assert len(messages) == 1
        assert "three steps in a row without a backward" in messages[0]


def schedule(rank: int, first: int, last: int, states: list[Any]) -> tuple[list[float], list[Any]]:
    """Learning rates of steps `first` to `last`; any warning is an error."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "DreamDDP: .* compute threads")  # true where cores are few
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        parts: list[Any] = [model, optimizer, scheduler]
        for part, state in zip(parts, states, strict=False):
            part.load_state_dict(state)
        plan = both_windows_plan(LAYERS, period=2)
        sync = DreamDDP(model, optimizer, plan=plan, first_iteration=first, timeout=20.0)
        for iteration in range(first, last):
            rates.append(optimizer.param_groups[0]["lr"])
            mlp_gradients(rank, model, iteration)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        sync.finish()
    return rates, [part.state_dict() for part in parts]


def test_c7_schedulers_see_the_steps_and_do_not_warn() -> None:
    results = run_ranks(schedule, 2, 0, 6, [])
    for rates, _ in results:
        assert rates == [0.8, 0.8, 0.4, 0.4, 0.2, 0.2]
    for rates, _ in run_ranks(schedule, 2, 6, 8, results[1][1]):
        assert rates == [0.1, 0.1]


class Optimizers:
    """Two optimizers over parts of one model, with the interface that the reference uses."""

    def __init__(self, model: nn.Module) -> None:
        self.parts = (
            torch.optim.SGD(model.get_submodule("0").parameters(), lr=0.1, momentum=0.9),
            torch.optim.AdamW(
                [*model.get_submodule("2").parameters(), *model.get_submodule("4").parameters()]
            ),
        )

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()


def train_with_two(rank: int) -> tuple[State, int]:
    model = build()
    optimizers = Optimizers(model)
    sync = DreamDDP(model, optimizers.parts, plan=both_windows_plan(LAYERS, period=2), timeout=20.0)
    for iteration in range(10):
        mlp_gradients(rank, model, iteration)
        optimizers.step()
        optimizers.zero_grad()
    sync._engine.finish()
    return state_of(model), sync.iteration


def mlp_gradients(rank: int, model: nn.Module, iteration: int) -> None:
    loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()


def test_c8_two_optimizers_over_parts_of_a_model() -> None:
    models = [build(), build()]
    optimizers: list[object] = [Optimizers(model) for model in models]
    run_reference(models, optimizers, mlp_gradients, both_windows_plan(LAYERS, period=2), PROFILE, 10)  # type: ignore[arg-type]
    results = run_ranks(train_with_two, 2)
    assert [places for _, places in results] == [10, 10]
    assert_equal([state for state, _ in results], [model.state_dict() for model in models])


def step_in_turn(rank: int) -> tuple[State, int]:
    """One of the two optimizers steps in an iteration, then the other."""
    model = build()
    optimizers = Optimizers(model)
    sync = DreamDDP(model, optimizers.parts, plan=both_windows_plan(LAYERS, period=2), timeout=20.0)
    for iteration in range(10):
        mlp_gradients(rank, model, iteration)
        optimizers.parts[iteration % 2].step()
        optimizers.zero_grad()
    places = sync.iteration
    sync.finish()
    return state_of(model), places


def test_c8_two_optimizers_that_step_in_turn() -> None:
    (first, places), (second, _) = run_ranks(step_in_turn, 2)
    assert places == 9  # the last iteration has no complete step, and no forward after it
    assert_equal([first], [second])


class Pair:
    """A generator and a discriminator, trained in turn."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))
        self.discriminator = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.generator_optimizer = torch.optim.SGD(self.generator.parameters(), lr=0.05, momentum=0.9)
        self.discriminator_optimizer = torch.optim.SGD(self.discriminator.parameters(), lr=0.05)

    def discriminator_gradients(self, rank: int, iteration: int) -> None:
        real, _ = batch_for("mlp", rank, iteration)
        fake = self.generator(real[:, :4]).detach()
        score = self.discriminator(torch.cat([real, fake]))
        labels = torch.cat([torch.ones(len(real), 1), torch.zeros(len(fake), 1)])
        functional.binary_cross_entropy_with_logits(score, labels).backward()

    def generator_gradients(self, rank: int, iteration: int) -> None:
        noise, _ = batch_for("mlp", rank, 1000 + iteration)
        score = self.discriminator(self.generator(noise[:, 4:]))
        functional.binary_cross_entropy_with_logits(score, torch.ones_like(score)).backward()


PAIR_LAYERS = ["0", "2"]


def train_pair(rank: int) -> tuple[State, State, int, int]:
    pair = Pair()
    plan = both_windows_plan(PAIR_LAYERS, period=2)
    generator = DreamDDP(pair.generator, pair.generator_optimizer, plan=plan, timeout=20.0)
    discriminator = DreamDDP(pair.discriminator, pair.discriminator_optimizer, plan=plan, timeout=20.0)
    for iteration in range(10):
        pair.discriminator_gradients(rank, iteration)
        pair.discriminator_optimizer.step()
        pair.discriminator_optimizer.zero_grad()
        with discriminator.no_sync():
            pair.generator_gradients(rank, iteration)
        pair.generator_optimizer.step()
        pair.generator_optimizer.zero_grad()
        pair.discriminator_optimizer.zero_grad()
    generator._engine.finish()
    discriminator._engine.finish()
    return (
        state_of(pair.generator),
        state_of(pair.discriminator),
        generator.iteration,
        discriminator.iteration,
    )


def test_two_models_that_train_in_turn_equal_the_reference() -> None:
    pairs = [Pair(), Pair()]
    plan = both_windows_plan(PAIR_LAYERS, period=2)
    profile = Profile([Layer(name, num_bytes=4) for name in PAIR_LAYERS])
    for iteration in range(10):
        run_reference(
            [pair.discriminator for pair in pairs],
            [pair.discriminator_optimizer for pair in pairs],
            lambda rank, _, at: pairs[rank].discriminator_gradients(rank, at),
            plan,
            profile,
            1,
            first_iteration=iteration,
        )
        run_reference(
            [pair.generator for pair in pairs],
            [pair.generator_optimizer for pair in pairs],
            lambda rank, _, at: pairs[rank].generator_gradients(rank, at),
            plan,
            profile,
            1,
            first_iteration=iteration,
        )
        for pair in pairs:
            pair.discriminator_optimizer.zero_grad()
    results = run_ranks(train_pair, 2)
    assert [result[2:] for result in results] == [(10, 10), (10, 10)]
    assert_equal([result[0] for result in results], [pair.generator.state_dict() for pair in pairs])
    assert_equal([result[1] for result in results], [pair.discriminator.state_dict() for pair in pairs])


def ask_for_a_profile(rank: int) -> bool:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2), timeout=20.0)
    with pytest.raises(ValueError, match="no complete iteration was measured"):
        sync.measured_profile()
    for iteration in range(8):
        mlp_gradients(rank, model, iteration)
        optimizer.step()
    with pytest.raises(ValueError, match=r"got none, as a plan was given.*Attach without a plan"):
        sync.measured_profile()
    sync.detach()
    sync = DreamDDP(model, optimizer, period=2, planner="local-sgd", profile_iterations=6, timeout=20.0)
    for iteration in range(5):
        mlp_gradients(rank, model, iteration)
        optimizer.step()
    early = sync.measured_profile()
    assert {layer.name for layer in early.layers} == {"(loop)", *LAYERS}
    for iteration in range(5):
        mlp_gradients(rank, model, iteration)
        optimizer.step()
    return sync.profile is not None and sync.measured_profile().to_json() == sync.profile.to_json()


def test_the_measured_profile_can_be_asked_for_at_any_time() -> None:
    assert run_ranks(ask_for_a_profile, 2) == [True, True]
