"""Training loops as people write them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP, LastRead, LastReadKind, Layer, Link, Profile
from tests.distributed.models import MODELS, batch_for, loss_of, mlp
from tests.distributed.plans import both_windows_plan, early_window_plan, forward_window_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.reference import run_reference

State = dict[str, torch.Tensor]
LAYERS = ["0", "2", "4"]


def assert_equal(first: State, second: State) -> None:
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def accumulate(rank: int, micro_batches: int) -> tuple[State, int, float]:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=1))
    sync.stats(reset=True)
    inputs, targets = batch_for("mlp", rank, 0, size=32)
    size = 32 // micro_batches
    for index in range(micro_batches):
        last = index == micro_batches - 1
        with nullcontext() if last else sync.no_sync():
            part = slice(index * size, (index + 1) * size)
            (loss_of("mlp", model, (inputs[part], targets[part])) / micro_batches).backward()
    optimizer.step()
    sync._engine.finish()
    return model.state_dict(), sync.iteration, float(sync._engine.statistics().ops)


def test_c1_accumulation_synchronises_once() -> None:
    accumulated, whole = run_ranks(accumulate, 2, 4), run_ranks(accumulate, 2, 1)
    for (state, steps, ops), (wanted, _, wanted_ops) in zip(accumulated, whole, strict=True):
        assert steps == 1
        assert ops == wanted_ops == 6
        for key, value in state.items():
            assert torch.allclose(value, wanted[key], atol=1e-6), key


def count_averages(rank: int) -> dict[str, int]:
    torch.manual_seed(0)
    model = mlp()
    groups = [
        {"params": model.get_submodule(name).parameters(), "lr": 0.1 / (1 + i)}
        for i, name in enumerate(LAYERS)
    ]
    optimizer = torch.optim.SGD(groups)
    sync = DreamDDP(model, optimizer, period=4, planner="equal-count", profile_iterations=5)
    sync.record(100)
    counts = dict.fromkeys(LAYERS, 0)
    for iteration in range(12):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    # Local SGD while measuring: one op with all layers; then one op per layer.
    for span in sync.timeline():
        if span.kind.name == "link":
            for layer in LAYERS:
                whole_model = "and 2 more" in span.name
                counts[layer] += whole_model or f"'{layer}'" in span.name
    return counts


def test_c2_parameter_groups_do_not_change_what_is_sent() -> None:
    assert run_ranks(count_averages, 2) == [dict.fromkeys(LAYERS, 3)] * 2


def clip(rank: int, attached: bool) -> State:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    if attached:
        DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2))
    for iteration in range(10):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def test_c4_gradient_clipping_at_one_rank_is_that_of_a_plain_loop() -> None:
    assert_equal(run_ranks(clip, 1, True)[0], run_ranks(clip, 1, False)[0])


def accumulate_around(rank: int, around: str, name: str) -> State:
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if name == "mlp":
        plan = early_window_plan(LAYERS, early="0")
    else:
        plan = early_window_plan(["embedding", "hidden", "head"], early="embedding")
    sync = DreamDDP(model, optimizer, plan=plan)
    for iteration in range(6):
        for micro_batch in range(3):
            forward: AbstractContextManager[None] = nullcontext()
            backward: AbstractContextManager[None] = nullcontext()
            with ExitStack() as both:
                if micro_batch < 2:
                    if around == "both":
                        both.enter_context(sync.no_sync())
                    forward = sync.no_sync() if around == "forward" else forward
                    backward = sync.no_sync() if around == "backward" else backward
                with forward:
                    loss = loss_of(name, model, batch_for(name, rank, 3 * iteration + micro_batch))
                with backward:
                    loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    return model.state_dict()


@pytest.mark.parametrize("name", ["mlp", "untied-embedding"])
def test_c5_no_sync_around_forward_backward_or_both(name: str) -> None:
    both, forward, backward = (
        run_ranks(accumulate_around, 2, around, name) for around in ("both", "forward", "backward")
    )
    for rank in range(2):
        assert_equal(both[rank], forward[rank])
        assert_equal(both[rank], backward[rank])


@dataclass
class EvaluatedRun:
    outputs: list[torch.Tensor]
    """Of the same inputs, after every iteration."""
    places: list[int]
    state: State


def evaluate_between(rank: int, evaluations: int) -> EvaluatedRun:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=forward_window_plan(LAYERS))
    run = EvaluatedRun([], [], {})
    for iteration in range(5):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            run.outputs += [model(torch.ones(1, 8)) for _ in range(evaluations)]
        model.train()
        run.places.append(sync.iteration)
    sync._engine.finish()
    run.state = model.state_dict()
    return run


def test_evaluations_read_averages_and_do_not_advance_the_plan() -> None:
    first, second = run_ranks(evaluate_between, 2, 2)
    assert first.places == second.places == [1, 2, 3, 4, 5]
    assert len(first.outputs) == 10
    for output, other in zip(first.outputs, second.outputs, strict=True):
        assert torch.equal(output, other)
    assert not torch.equal(first.outputs[0], first.outputs[-1])
    for run, plain in zip((first, second), run_ranks(evaluate_between, 2, 0), strict=True):
        assert_equal(run.state, plain.state)


def save_while_attached(rank: int, path: str) -> bool:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keys = list(model.state_dict())
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2))
    for iteration in range(3):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        optimizer.step()
    sync.finish()
    if rank == 0:
        torch.save(model.state_dict(), path)
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    sync.detach()
    left = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert sum(hooks) > 0
    return keys == list(model.state_dict()) and sum(left) == 0 and not optimizer._optimizer_step_pre_hooks


def test_d3_keys_are_those_of_the_bare_model(tmp_path: Path) -> None:
    assert run_ranks(save_while_attached, 2, str(tmp_path / "model.pt")) == [True, True]
    without_this_library = """
import sys, torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
model.load_state_dict(torch.load(sys.argv[1], weights_only=True))
assert not any("dreamddp" in name for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", without_this_library, str(tmp_path / "model.pt")], check=True)


def skip_steps(rank: int) -> tuple[State, int]:
    """A loss scaler skips on one rank only: both launch the same ops."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=both_windows_plan(LAYERS, period=2))
    for iteration in range(8):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        if not (rank == 1 and iteration in (0, 3)):
            optimizer.step()
        optimizer.zero_grad()
    sync.finish()
    return model.state_dict(), sync._engine.statistics().ops


def test_c3_a_step_skipped_on_one_rank_does_not_hang() -> None:
    (first, first_ops), (second, second_ops) = run_ranks(skip_steps, 2)
    assert first_ops == second_ops
    assert_equal(first, second)


def skip_all_measured_steps(rank: int) -> tuple[State, bool, bool]:
    """A loss scaler comes down from its first scale while layers are measured."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(
        model, optimizer, period=2, profile_iterations=6, link=Link(bandwidth_bytes_per_second=1e8)
    )
    planned = []
    for iteration in range(20):
        loss_of("mlp", model, batch_for("mlp", rank, iteration)).backward()
        if iteration >= 5 + rank:
            optimizer.step()
        optimizer.zero_grad()
        planned.append(sync.plan is not None and sync.plan.planner == "balanced")
    sync.finish()
    return model.state_dict(), planned[8], planned[-1]


def test_c3_steps_skipped_while_layers_are_measured_prolong_it() -> None:
    (first, *plans), (second, *others) = run_ranks(skip_all_measured_steps, 2)
    assert plans == others == [False, True]
    assert_equal(first, second)


def two_losses(rank: int, model: nn.Module, iteration: int) -> None:
    """Two forwards, then one backward."""
    batches = [batch_for("untied-embedding", rank, 2 * iteration + part) for part in range(2)]
    torch.stack([loss_of("untied-embedding", model, batch) for batch in batches]).sum().backward()


EMBEDDING_LAYERS = ["embedding", "hidden", "head"]
TWO_FORWARD_PLANS = {
    "both windows": both_windows_plan(EMBEDDING_LAYERS, period=2),
    "forward window": forward_window_plan(EMBEDDING_LAYERS),
    "early window": early_window_plan(EMBEDDING_LAYERS, early="embedding"),
}


def train_with_two_losses(rank: int, plan: str) -> tuple[State, int]:
    torch.manual_seed(0)
    model = MODELS["untied-embedding"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = DreamDDP(model, optimizer, plan=TWO_FORWARD_PLANS[plan], timeout=20.0)
    for iteration in range(10):
        two_losses(rank, model, iteration)
        optimizer.step()
        optimizer.zero_grad()
    sync._engine.finish()
    return model.state_dict(), sync.iteration


@pytest.mark.parametrize("plan", TWO_FORWARD_PLANS)
def test_b9_two_forwards_and_one_backward_equal_the_reference(plan: str) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(MODELS["untied-embedding"]())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    early = LastRead(LastReadKind.forward)
    profile = Profile(
        [
            Layer("embedding", num_bytes=4, last_read=early),
            *(Layer(n, num_bytes=4) for n in EMBEDDING_LAYERS[1:]),
        ]
    )
    run_reference(models, optimizers, two_losses, TWO_FORWARD_PLANS[plan], profile, 10)
    for (state, iteration), model in zip(run_ranks(train_with_two_losses, 2, plan), models, strict=True):
        assert iteration == 10
        assert_equal(state, model.state_dict())
