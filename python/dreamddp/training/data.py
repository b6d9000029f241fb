"""Batches of bytes, drawn so that (seed, rank, step) alone decides what is in them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from dreamddp._core import reject
from dreamddp.training.text import HELD_OUT_PARTS, min_text_bytes

HELD_OUT_WINDOWS = 64


@dataclass(frozen=True)
class Batches:
    """Random windows of the training text, and fixed ones of the held-out tail that is never trained on."""

    training: Tensor
    """uint8, one dimension."""
    held_out: Tensor
    """uint8, one dimension."""
    window_bytes: int
    """Bytes of one sequence."""
    batch_size: int
    """Sequences of one batch."""
    seed: int
    """Another seed gives other batches."""

    def draw(self, rank: int, step: int) -> Tensor:
        """The batch of one rank and step: int64, batch_size x window_bytes."""
        generator = random.Random(f"{self.seed}/{rank}/{step}")
        last = self.training.numel() - self.window_bytes
        begins = [generator.randint(0, last) for _ in range(self.batch_size)]
        return _windows(self.training, begins, self.window_bytes)

    def held_out_batches(self, rank: int, workers: int) -> list[Tensor]:
        """This rank's share of the held-out windows; all ranks together have every window once."""
        last = self.held_out.numel() - self.window_bytes
        begins = [last * index // (HELD_OUT_WINDOWS - 1) for index in range(HELD_OUT_WINDOWS)][rank::workers]
        groups = [begins[first : first + self.batch_size] for first in range(0, len(begins), self.batch_size)]
        return [_windows(self.held_out, group, self.window_bytes) for group in groups]


def _windows(text: Tensor, begins: list[int], window_bytes: int) -> Tensor:
    return torch.stack([text[begin : begin + window_bytes] for begin in begins]).long()


def make_batches(text: bytes, *, window_bytes: int, batch_size: int, seed: int) -> Batches:
    """Splits the text: the last sixteenth of it is held out.

    Raises ValueError where the text is shorter than min_text_bytes().
    """
    if len(text) < min_text_bytes(window_bytes):
        reject("text", f"{len(text)} bytes", f"at least {min_text_bytes(window_bytes)}", "Give more text.")
    whole = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    split = len(text) - len(text) // HELD_OUT_PARTS
    return Batches(whole[:split], whole[split:], window_bytes, batch_size, seed)
