"""Small models with the quirks that real ones have, and deterministic data for them."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


class Attention(nn.Module):
    """`out_proj` is read without being called; the parent reads the weight of `gate` itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.gate = nn.Linear(16, 16, bias=False)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).unsqueeze(0)
        x, _ = self.attention(x, x, x, need_weights=False)
        y: torch.Tensor = self.head(functional.linear(x.squeeze(0), self.gate.weight))
        return y


class TiedEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.hidden = nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(torch.relu(self.hidden(self.embedding(tokens))))
        return logits


class UntiedEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.hidden = nn.Linear(16, 16)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(torch.relu(self.hidden(self.embedding(tokens))))
        return logits


class Odd(nn.Module):
    """An empty layer, a scale without dimensions, parameters of the model itself."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = nn.Linear(8, 0)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(x * self.scale) + self.empty(x).sum()
        return y


MODELS: dict[str, Callable[[], nn.Module]] = {
    "attention": Attention,
    "mlp": mlp,
    "odd": Odd,
    "tied-embedding": TiedEmbedding,
    "untied-embedding": UntiedEmbedding,
}


def batch_for(name: str, rank: int, iteration: int, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """The same on every machine and in every process."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {rank} {iteration}".encode()))
    if "embedding" in name:
        tokens = torch.randint(0, 50, (size,), generator=generator)
        return tokens, torch.randint(0, 50, (size,), generator=generator)
    return torch.randn(size, 8, generator=generator), torch.randint(0, 4, (size,), generator=generator)


def loss_of(name: str, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    return functional.cross_entropy(model(inputs), targets)
