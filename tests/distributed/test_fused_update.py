"""The optimizer steps each layer inside the backward: equal to the algorithm in one process, bit for bit."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, Layer, Link, Plan, Profile, Update, make_plan
from tests.distributed.models import MODELS, batch_for, loss_of
from tests.distributed.plans import fused_backward_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.reference import run_reference
from tests.distributed.test_engine_reference import found_profile

State = dict[str, torch.Tensor]
PLANNERS = ["balanced", "dreamddp", "equal-count", "local-sgd"]


def build(name: str, kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """AdamW has two parameter groups: what is a matrix, and the rest."""
    torch.manual_seed(0)
    model = MODELS[name]()
    if kind == "sgd":
        return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": 0.1}]
    if rest:
        groups.append({"params": rest, "weight_decay": 0.0, "lr": 0.01})
    return model, torch.optim.AdamW(groups, lr=0.003)


def state_of(model: nn.Module) -> State:
    return {key: value.clone() for key, value in model.state_dict().items()}


def assert_equal(states: Iterable[State], wanted: Iterable[State]) -> None:
    for state, reference in zip(states, wanted, strict=True):
        assert state.keys() == reference.keys()
        for key, value in state.items():
            assert torch.equal(value, reference[key]), key


def fused_plan(name: str, planner: str, period: int = 3) -> Plan:
    profile = Profile.from_json(run_ranks(found_profile, 2, name)[0])
    link = Link(bandwidth_bytes_per_second=1e6, workers=2)
    plan = make_plan(planner, profile, link, period=period, fused_update=True)
    assert plan.update is Update.fused
    return plan


MLP_PLAN = fused_backward_plan(["0", "2", "4"], period=2)
NO_TIMES = Profile([Layer("any", num_bytes=4)])


def reference(name: str, kind: str, plan: Plan, iterations: int, every: int = 1) -> list[nn.Module]:
    models, optimizers = zip(*(build(name, kind) for _ in range(2)), strict=True)

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        for index in range(every):
            loss_of(name, model, batch_for(name, rank, every * iteration + index)).backward()

    run_reference(models, optimizers, compute_gradients, plan, NO_TIMES, iterations)
    return list(models)


def train(rank: int, name: str, kind: str, plan_text: str, iterations: int) -> State:
    model, optimizer = build(name, kind)
    sync = DreamDDP(model, optimizer, plan=Plan.from_json(plan_text), fused_update=True, timeout=20.0)
    for iteration in range(iterations):
        optimizer.zero_grad()
        loss_of(name, model, batch_for(name, rank, iteration)).backward()
        optimizer.step()
    sync._engine.finish()
    return state_of(model)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("planner", PLANNERS)
def test_two_ranks_equal_the_reference(name: str, planner: str) -> None:
    plan = fused_plan(name, planner)
    states = run_ranks(train, 2, name, "sgd", plan.to_json(), 12)
    assert_equal(states, [state_of(model) for model in reference(name, "sgd", plan, 12)])


@pytest.mark.parametrize("name", ["mlp", "tied-embedding"])
def test_adamw_with_two_groups_equals_the_reference(name: str) -> None:
    plan = fused_plan(name, "balanced")
    states = run_ranks(train, 2, name, "adamw", plan.to_json(), 12)
    assert_equal(states, [state_of(model) for model in reference(name, "adamw", plan, 12)])


def train_measured(rank: int) -> tuple[State, list[str]]:
    """Measures the layers first, under Local SGD."""
    model, optimizer = build("mlp", "sgd")
    link = Link(bandwidth_bytes_per_second=1e6, workers=2)
    sync = DreamDDP(
        model, optimizer, period=2, link=link, profile_iterations=6, fused_update=True, timeout=20.0
    )
    plans = []
    for iteration in range(11):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert sync.plan is not None
        if sync.plan.to_json() not in plans:
            plans.append(sync.plan.to_json())
    sync._engine.finish()
    return state_of(model), plans


def test_plans_are_fused_while_measuring_and_afterwards() -> None:
    (first, plans), (second, _) = run_ranks(train_measured, 2)
    assert [Plan.from_json(plan).update for plan in plans] == [Update.fused] * 2
    models, optimizers = zip(*(build("mlp", "sgd") for _ in range(2)), strict=True)

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()

    run_reference(models, optimizers, compute_gradients, Plan.from_json(plans[0]), NO_TIMES, 6)
    run_reference(models, optimizers, compute_gradients, Plan.from_json(plans[1]), NO_TIMES, 5, 6)
    assert_equal([first, second], [state_of(model) for model in models])


def look_at_steps(rank: int, reads_at_first: bool) -> list[bool]:
    """Whether the last layer has been stepped when each backward comes to the first one."""
    model, optimizer = build("mlp", "sgd")
    sync = DreamDDP(model, optimizer, plan=MLP_PLAN, fused_update=True, timeout=20.0)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(state_of(model)))
    weight = model.get_parameter("4.weight")
    seen: list[bool] = []
    for iteration in range(3):
        before = weight.detach().clone()
        loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))

        def first_layer_comes(_: torch.Tensor, before: torch.Tensor = before) -> None:
            seen.append(not torch.equal(weight, before))

        if iteration > 0 or reads_at_first:
            hook = model.get_parameter("0.weight").register_hook(first_layer_comes)
        loss.backward()
        sync.wait()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        values = state_of(model)
        optimizer.step()
        assert_equal([state_of(model), calls[-1]], [values, values])
        assert all(p.grad is gradients[name] is not None for name, p in model.named_parameters())
        assert len(calls) == iteration + 1
        optimizer.zero_grad()
        if iteration > 0 or reads_at_first:
            hook.remove()
    assert optimizer.param_groups[0]["params"] == list(model.parameters())
    return seen


def test_layers_step_inside_the_backward_and_the_users_step_changes_nothing() -> None:
    assert run_ranks(look_at_steps, 2, False) == [[True, True]] * 2


def test_a_layer_that_is_read_behind_its_gradient_steps_at_the_end_of_the_backward() -> None:
    assert run_ranks(look_at_steps, 2, True) == [[False, False, False]] * 2


def accumulate(rank: int) -> State:
    model, optimizer = build("mlp", "adamw")
    sync = DreamDDP(model, optimizer, plan=MLP_PLAN, fused_update=True, timeout=20.0)
    for iteration in range(6):
        for index in range(3):
            batch = batch_for("mlp", rank, 3 * iteration + index)
            if index < 2:
                with sync.no_sync():
                    loss_of("mlp", model, batch).backward()
            else:
                loss_of("mlp", model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    return state_of(model)


def test_accumulated_gradients_are_used_in_the_final_backward() -> None:
    states = run_ranks(accumulate, 2)
    assert_equal(states, [state_of(model) for model in reference("mlp", "adamw", MLP_PLAN, 6, every=3)])


def accumulate_in_parts(rank: int, model: nn.Module, sync: DreamDDP | None, iteration: int) -> None:
    """The final backward of odd iterations does not reach layer "0", which has gradients of the first one."""
    with nullcontext() if sync is None else sync.no_sync():
        loss_of("mlp", model, batch_for("mlp", rank, 2 * iteration)).backward()
    final = loss_of("mlp", model, batch_for("mlp", rank, 2 * iteration + 1))
    if iteration % 2:
        inputs = [p for name, p in model.named_parameters() if not name.startswith("0.")]
        final.backward(inputs=inputs)
    else:
        final.backward()


def train_in_parts(rank: int) -> State:
    model, optimizer = build("mlp", "sgd")
    sync = DreamDDP(model, optimizer, plan=MLP_PLAN, fused_update=True, timeout=20.0)
    for iteration in range(6):
        accumulate_in_parts(rank, model, sync, iteration)
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    return state_of(model)


def test_a_layer_that_does_not_come_steps_at_the_end_of_the_backward() -> None:
    models, optimizers = zip(*(build("mlp", "sgd") for _ in range(2)), strict=True)
    run_reference(
        models,
        optimizers,
        lambda rank, model, iteration: accumulate_in_parts(rank, model, None, iteration),
        MLP_PLAN,
        NO_TIMES,
        6,
    )
    assert_equal(run_ranks(train_in_parts, 2), [state_of(model) for model in models])


def flush(rank: int) -> State:
    """Two windows; the second is stepped without a final backward."""
    model, optimizer = build("mlp", "sgd")
    sync = DreamDDP(model, optimizer, plan=MLP_PLAN, fused_update=True, timeout=20.0)
    loss_of("mlp", model, batch_for("mlp", rank, 0)).backward()
    optimizer.step()
    optimizer.zero_grad()
    with sync.no_sync():
        loss_of("mlp", model, batch_for("mlp", rank, 1)).backward()
    optimizer.step()
    optimizer.zero_grad()
    assert sync.iteration == 1
    sync._engine.finish()
    return state_of(model)


def test_a_step_behind_a_micro_batch_is_an_ordinary_one() -> None:
    models = reference("mlp", "sgd", MLP_PLAN, 1)
    wanted = []
    states = run_ranks(flush, 2)
    for rank in range(2):
        local, optimizer = build("mlp", "sgd")
        loss_of("mlp", local, batch_for("mlp", rank, 0)).backward()
        optimizer.step()
        optimizer.zero_grad()
        local.load_state_dict(models[rank].state_dict())
        loss_of("mlp", local, batch_for("mlp", rank, 1)).backward()
        optimizer.step()
        wanted.append(state_of(local))
    assert_equal(states, wanted)


def schedule(rank: int) -> tuple[State, list[float]]:
    warnings.simplefilter("error")
    model, optimizer = build("mlp", "sgd")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    sync = DreamDDP(model, optimizer, plan=MLP_PLAN, fused_update=True, timeout=20.0)
    rates = []
    for iteration in range(6):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        rates.append(float(scheduler.get_last_lr()[0]))
    sync._engine.finish()
    return state_of(model), rates


def test_learning_rates_follow_the_scheduler() -> None:
    models, optimizers = zip(*(build("mlp", "sgd") for _ in range(2)), strict=True)

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        if iteration % 2 == 0 and iteration > 0:
            optimizers[rank].param_groups[0]["lr"] *= 0.5
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()

    run_reference(models, optimizers, compute_gradients, MLP_PLAN, NO_TIMES, 6)
    results = run_ranks(schedule, 2)
    assert results[0][1] == [0.05, 0.025, 0.025, 0.0125, 0.0125, 0.00625]
    assert_equal([state for state, _ in results], [state_of(model) for model in models])


def resume(rank: int, plan_text: str) -> tuple[State, State]:
    """Trains 9 iterations at once, and saved and loaded after the 4th."""

    def run(model: nn.Module, optimizer: torch.optim.Optimizer, iterations: range) -> None:
        for iteration in iterations:
            loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()

    plan = Plan.from_json(plan_text)
    model, optimizer = build("mlp", "adamw")
    sync = DreamDDP(model, optimizer, plan=plan, fused_update=True, timeout=20.0)
    run(model, optimizer, range(4))
    states = [copy.deepcopy(part.state_dict()) for part in (model, optimizer, sync)]
    run(model, optimizer, range(4, 9))
    sync._engine.finish()
    sync.detach()
    other, other_optimizer = build("mlp", "adamw")
    resumed = DreamDDP(other, other_optimizer, fused_update=True, timeout=20.0)
    other.load_state_dict(states[0])
    other_optimizer.load_state_dict(states[1])
    resumed.load_state_dict(states[2])
    run(other, other_optimizer, range(4, 9))
    resumed._engine.finish()
    resumed.detach()
    third, third_optimizer = build("mlp", "adamw")
    without = DreamDDP(third, third_optimizer, timeout=20.0)
    with pytest.raises(ValueError, match="Attach with fused_update=True"):
        without.load_state_dict(states[2])
    return state_of(model), state_of(other)


def test_a_resumed_training_is_the_one_that_went_on() -> None:
    plan = fused_plan("mlp", "balanced")
    results = run_ranks(resume, 2, plan.to_json())
    for whole, resumed in results:
        assert_equal([resumed], [whole])
    assert_equal([whole for whole, _ in results], map(state_of, reference("mlp", "adamw", plan, 9)))


def two_optimizers(rank: int) -> State:
    model, _ = build("mlp", "sgd")
    parameters = list(model.parameters())
    first = torch.optim.SGD(parameters[:3], lr=0.1, momentum=0.9)  # a part of a layer, too
    second = torch.optim.Adam(parameters[3:], lr=0.01)
    sync = DreamDDP(model, [first, second], plan=MLP_PLAN, fused_update=True, timeout=20.0)
    for iteration in range(5):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        for optimizer in (second, first):
            optimizer.step()
            optimizer.zero_grad()
    sync._engine.finish()
    return state_of(model)


def test_two_optimizers_over_parts_of_one_model() -> None:
    models = [build("mlp", "sgd")[0] for _ in range(2)]
    optimizers: list[torch.optim.Optimizer] = []
    for model in models:
        parameters = list(model.parameters())
        optimizers.append(torch.optim.SGD(parameters[:3], lr=0.1, momentum=0.9))
        optimizers.append(torch.optim.Adam(parameters[3:], lr=0.01))

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()

    run_reference(models, optimizers, compute_gradients, MLP_PLAN, NO_TIMES, 5)
    assert_equal(run_ranks(two_optimizers, 2), [state_of(model) for model in models])


def skip(rank: int) -> State:
    model, optimizer = build("mlp", "sgd")
    sync = DreamDDP(model, optimizer, plan=MLP_PLAN, fused_update=True, timeout=20.0)
    for batch in range(6):
        loss = loss_of("mlp", model, batch_for("mlp", rank, batch))
        if sync.skip_step(batch == 2 and rank == 1):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    return state_of(model)


def test_batches_are_left_out_before_the_backward() -> None:
    models, optimizers = zip(*(build("mlp", "sgd") for _ in range(2)), strict=True)

    def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
        loss_of("mlp", model, batch_for("mlp", rank, iteration + (iteration >= 2))).backward()

    run_reference(models, optimizers, compute_gradients, MLP_PLAN, NO_TIMES, 5)
    assert_equal(run_ranks(skip, 2), [state_of(model) for model in models])
