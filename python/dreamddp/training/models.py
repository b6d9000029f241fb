"""The models that can be trained and profiled by name: byte-level, built offline with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

VOCABULARY = 256
MLP_WIDTH = 64


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """How to build a model and how to compute its loss. Building imports torch; the table below does not."""

    summary: str
    """One line for people."""
    window_bytes: int
    """Bytes of one sequence of a batch, targets included."""
    build: Callable[[], nn.Module]
    """A new model with random weights from torch's default generator."""
    loss: Callable[[nn.Module, Tensor], Tensor]
    """The mean loss of a batch (int64, batch x window_bytes) under a model, which may be wrapped."""


def _gpt2(*, context: int, width: int, layers: int, heads: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=context,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            use_cache=False,
        )
        model: nn.Module = GPT2LMHeadModel(config)
        return model

    return build


def _next_byte_loss(model: nn.Module, batch: Tensor) -> Tensor:
    from torch.nn import functional

    logits = model(input_ids=batch[:, :-1]).logits
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def _mlp() -> nn.Module:
    from torch import nn

    return nn.Sequential(
        nn.Linear(8, MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(MLP_WIDTH, MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(MLP_WIDTH, VOCABULARY),
    )


def _last_byte_loss(model: nn.Module, batch: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.cross_entropy(model(batch[:, :-1].float() / VOCABULARY), batch[:, -1])


MODELS: dict[str, ModelSpec] = {
    "gpt2-tiny": ModelSpec(
        summary="GPT-2 over bytes, 4 layers of width 256, context 128: 3.3 million parameters",
        window_bytes=129,
        build=_gpt2(context=128, width=256, layers=4, heads=4),
        loss=_next_byte_loss,
    ),
    "gpt2-small-bytes": ModelSpec(
        summary="GPT-2 over bytes, 6 layers of width 352, context 256: 9.1 million parameters",
        window_bytes=257,
        build=_gpt2(context=256, width=352, layers=6, heads=8),
        loss=_next_byte_loss,
    ),
    "mlp": ModelSpec(
        summary="three linear layers that guess a byte from the eight before it: for tests",
        window_bytes=9,
        build=_mlp,
        loss=_last_byte_loss,
    ),
}


def build_model(name: str, seed: int) -> torch.nn.Module:
    """The model of that name; the same seed gives the same weights on every rank."""
    import torch

    torch.manual_seed(seed)
    return MODELS[name].build()
