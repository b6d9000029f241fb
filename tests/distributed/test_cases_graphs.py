"""Graphs of all kinds train exactly like the algorithm in one process: checkpointing, branches, tied and
sparse gradients, adapters, compiled models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dreamddp import DreamDDP, Layer, Plan, Profile, Update
from dreamddp.layers import find_layers
from tests.distributed.models import Attention, batch_for, mlp
from tests.distributed.plans import both_windows_plan, forward_window_plan, fused_backward_plan
from tests.distributed.ranks import run_ranks
from tests.distributed.reference import run_reference

State = dict[str, torch.Tensor]


class Checkpointed(nn.Module):
    """`block` runs in two checkpointed parts, so its gradient comes twice; `other` in one."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.embed = nn.Linear(8, 16)
        self.block = nn.Linear(16, 16)
        self.other = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for part in (self.block, self.other, self.block):
            x = torch.relu(checkpoint(part, x, use_reentrant=self.use_reentrant))
        y: torch.Tensor = self.head(x)
        return y


class Branching(nn.Module):
    """Which layers are read, and in what order, changes from call to call, and differs between ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.sometimes = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)
        self.calls = 0
        self.rank = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        order = [self.first, self.second]
        if (self.calls + self.rank) % 2:
            order.reverse()
        if (self.calls + self.rank) % 3 == 0:
            order.append(self.sometimes)
        for layer in order:
            x = torch.tanh(layer(x))
        y: torch.Tensor = self.head(x)
        return y


class SharedLayer(nn.Module):
    """One layer used twice in a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.shared = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.shared(torch.relu(self.shared(self.embed(x)))))
        return y


class SparseEmbedding(nn.Module):
    """Rank 1 sees nothing but padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4, sparse=True, padding_idx=0)
        self.head = nn.Linear(4, 4)
        self.rank = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (x[:, 0].abs() * 100).long() % 10 if self.rank == 0 else torch.zeros(len(x)).long()
        y: torch.Tensor = self.head(self.embedding(tokens))
        return y


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank, named like those of adapter libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(8, 4).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(8, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 4, bias=False)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))
        return y


class Autocast(nn.Module):
    """Computes in bfloat16 with parameters of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y: torch.Tensor = self.layers(x)
        return y.float()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "checkpointed, reentrant": lambda: Checkpointed(use_reentrant=True),
    "checkpointed": lambda: Checkpointed(use_reentrant=False),
    "branching": Branching,
    "shared layer": SharedLayer,
    "sparse embedding": SparseEmbedding,
    "adapted": Adapted,
    "autocast": Autocast,
    "attention": Attention,
}
PLANS: dict[str, Callable[[list[str]], Plan]] = {
    "both windows": lambda layers: both_windows_plan(layers, period=2),
    "forward window": forward_window_plan,
    "fused updates": lambda layers: fused_backward_plan(layers, period=2),
}


def build(name: str, rank: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = MODELS[name]()
    if isinstance(model, Branching | SparseEmbedding):
        model.rank = rank
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.0 if "sparse" in name else 0.9)


def compute_gradients(rank: int, model: nn.Module, iteration: int) -> None:
    inputs, targets = batch_for("mlp", rank, iteration)
    functional.cross_entropy(model(inputs), targets).backward()


def layers_of(name: str) -> list[str]:
    return [layer.name for layer in find_layers(MODELS[name]())]


def train(rank: int, name: str, plan: str, set_to_none: bool = True) -> State:
    model, optimizer = build(name, rank)
    made = PLANS[plan](layers_of(name))
    sync = DreamDDP(model, optimizer, plan=made, fused_update=made.update is Update.fused, timeout=20.0)
    for iteration in range(20):
        compute_gradients(rank, model, iteration)
        optimizer.step()
        optimizer.zero_grad(set_to_none)
    assert sync.iteration == 20
    sync._engine.finish()
    return {key: value.clone() for key, value in model.state_dict().items()}


def expected(name: str, plan: str) -> list[State]:
    models, optimizers = zip(*(build(name, rank) for rank in range(2)), strict=True)
    layers = layers_of(name)
    profile = Profile([Layer(layer, num_bytes=4) for layer in layers])
    run_reference(models, optimizers, compute_gradients, PLANS[plan](layers), profile, 20)
    return [model.state_dict() for model in models]


def check(states: list[State], wanted: list[State]) -> None:
    for state, reference in zip(states, wanted, strict=True):
        assert state.keys() == reference.keys()
        for key, value in state.items():
            assert torch.equal(value, reference[key]), key


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", MODELS)
def test_b_graphs_of_all_kinds_equal_the_reference(name: str, plan: str) -> None:
    check(run_ranks(train, 2, name, plan), expected(name, plan))


def test_gradients_that_are_zeroed_in_place_equal_the_reference() -> None:
    check(
        run_ranks(train, 2, "shared layer", "both windows", False), expected("shared layer", "both windows")
    )


def train_with_waiting_reads(rank: int, name: str, compiles: bool) -> State:
    model, optimizer = build(name, rank)
    sync = DreamDDP(model, optimizer, plan=PLANS["both windows"](layers_of(name)), timeout=20.0)
    if compiles:
        model.compile(backend="aot_eager")
    with sync.waiting_reads():
        for iteration in range(20):
            compute_gradients(rank, model, iteration)
            optimizer.step()
            optimizer.zero_grad()
    sync._engine.finish()
    return {key: value.clone() for key, value in model.state_dict().items()}


@pytest.mark.parametrize("name", ["attention", "branching", "checkpointed, reentrant"])
def test_b2_waiting_reads_change_no_value(name: str) -> None:
    check(run_ranks(train_with_waiting_reads, 2, name, False), expected(name, "both windows"))


def test_b2_waiting_reads_of_a_compiled_model() -> None:
    states = run_ranks(train_with_waiting_reads, 2, "shared layer", True, timeout=120.0)
    for state, wanted in zip(states, expected("shared layer", "both windows"), strict=True):
        for key, value in state.items():
            assert torch.allclose(value, wanted[key], rtol=0, atol=1e-6), key


def checkpoint_the_model(rank: int) -> bool:
    """All of the model in one reentrant checkpoint: its forward cannot be told from an evaluation."""
    model, optimizer = build("shared layer", rank)
    DreamDDP(model, optimizer, period=2)
    inputs = torch.ones(2, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        checkpoint(model, inputs, use_reentrant=True).sum().backward()
    return True


def test_b3_a_reentrant_checkpoint_of_the_whole_model_is_refused() -> None:
    assert run_ranks(checkpoint_the_model, 1) == [True]


def train_compiled(rank: int, when: str, plan: str) -> State:
    model, optimizer = build("shared layer", rank)
    compiled: nn.Module = model
    if when == "before":
        compiled = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
    elif when == "in place before":
        model.compile(backend="aot_eager")
    layers = layers_of("shared layer")
    prefix = "_orig_mod." if when == "before" else ""
    made = PLANS[plan]([prefix + layer for layer in layers])
    sync = DreamDDP(compiled, optimizer, plan=made, fused_update=made.update is Update.fused, timeout=20.0)
    if when == "after":
        compiled = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
    elif when == "in place after":
        model.compile(backend="aot_eager")
    elif when == "blocks after":
        for layer in layers:
            model.get_submodule(layer).compile(backend="aot_eager")
    for iteration in range(20):
        compute_gradients(rank, compiled, iteration)
        optimizer.step()
        optimizer.zero_grad()
    assert sync.iteration == 20
    sync._engine.finish()
    return {key: value.clone() for key, value in model.state_dict().items()}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("when", ["before", "after", "in place before", "in place after", "blocks after"])
def test_b10_compiled_models_equal_the_reference(when: str, plan: str) -> None:
    for state, wanted in zip(
        run_ranks(train_compiled, 2, when, plan, timeout=120.0), expected("shared layer", plan), strict=True
    ):
        for key, value in state.items():
            assert torch.allclose(value, wanted[key], rtol=0, atol=1e-6), key


def attach_lazy(rank: int) -> bool:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(affine=False))
    with pytest.raises(ValueError, match=r"'0.weight': got no values yet.*Run one forward"):
        DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1), period=1)
    norm = nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d(affine=False))
    with pytest.raises(ValueError, match=r"buffer '1.running_mean': got no values yet.*Run one forward"):
        DreamDDP(norm, torch.optim.SGD(norm.parameters(), lr=0.1), period=1)
    return True


def test_b11_lazy_modules_are_to_run_once_before() -> None:
    assert run_ranks(attach_lazy, 2) == [True, True]


def profile_of_another_model(rank: int, names: list[str]) -> str:
    model, optimizer = build("adapted", rank)
    profile = Profile([Layer(name, num_bytes=64, transfer_seconds=1) for name in names])
    with pytest.raises(ValueError, match="profile: it lists layers") as error:
        DreamDDP(model, optimizer, profile=profile, period=2)
    plan = both_windows_plan(names, period=1)
    with pytest.raises(ValueError, match="plan: it lists layers"):
        DreamDDP(model, optimizer, plan=plan)
    return str(error.value)


def test_b12_names_of_adapters_that_do_not_match_are_an_error() -> None:
    for text in run_ranks(profile_of_another_model, 2, ["lora_A", "lora_B.default"]):
        assert "layers that the model lacks (lora_A)" in text
        assert "lacks layers that the model has (lora_A.default)" in text
    for text in run_ranks(profile_of_another_model, 1, ["base_layer", "lora_A.default", "lora_B.default"]):
        assert "layers that the model lacks (base_layer)" in text
