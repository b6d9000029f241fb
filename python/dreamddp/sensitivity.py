"""How fast the gradients of layers turn: what says which layers can go longer without an average.

Design section 10. One process is enough: it is a property of model and data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dreamddp._core import reject
from dreamddp._runtime import GradientStatistics, default_sketch_size
from dreamddp.layers import find_layers

DEFAULT_SKETCH_SIZE: int = default_sketch_size
LAGS = (1, 2, 4, 8)
COLD_ITERATIONS = 8
"""The first ones do not count: gradients at random weights turn as they never do again."""
MIN_ITERATIONS = COLD_ITERATIONS + LAGS[-1] + 1
"""So that there is a similarity of every lag."""


@dataclass(frozen=True, kw_only=True)
class LayerSensitivity:
    """One layer, over the iterations that were observed."""

    layer: str
    num_elements: int
    gradient_norm: float | None
    """Its mean; None where there was never a gradient."""
    similarities: dict[int, float | None]
    """By lag in iterations, the mean cosine between two gradients so far apart."""
    period: int
    """The proposal; `policies.take_turns()` makes policies of those of all layers."""


class SensitivityWatch:
    """Watches a training loop: call `backward_ended()` after every backward, before gradients are cleared.

    Args:
        model: its trainable parameters are looked at, by layer.
        sketch_size: numbers that stand for a gradient; 0 keeps whole copies, of which it takes nine. Where
            there are more elements, a similarity has a standard deviation of 1 / sqrt(sketch_size).
    """

    def __init__(self, model: nn.Module, *, sketch_size: int = DEFAULT_SKETCH_SIZE) -> None:
        self._layers = find_layers(model)
        self._statistics = GradientStatistics(
            [list(layer.parameters) for layer in self._layers],
            lags=LAGS,
            with_last_average=False,
            sketch_size=sketch_size,
        )
        self._iterations = 0
        self._norms: list[list[float]] = [[] for _ in self._layers]
        self._similarities: list[list[list[float]]] = [[[] for _ in LAGS] for _ in self._layers]

    @property
    def memory_bytes(self) -> int:
        """What earlier gradients, or their sketches, take."""
        return self._statistics.memory_bytes

    def backward_ended(self) -> None:
        """Compares the gradients with earlier ones."""
        for index in range(len(self._layers)):
            self._statistics.observe(index, is_averaged=False)
            seen = self._statistics[index]
            if self._iterations < COLD_ITERATIONS:
                continue
            if not math.isnan(seen.norm):
                self._norms[index].append(seen.norm)
            for values, value in zip(self._similarities[index], seen.lag_similarities, strict=True):
                if not math.isnan(value):
                    values.append(value)
        self._statistics.iteration_ends()
        self._iterations += 1

    def layers(self, fraction: float) -> list[LayerSensitivity]:
        """What was seen, with the periods that `propose_period()` gives.

        Raises:
            ValueError: for a fraction out of range, and where too few iterations were observed.
        """
        if self._iterations < MIN_ITERATIONS:
            reject(
                "iterations",
                self._iterations,
                f"at least {MIN_ITERATIONS}",
                "Run more: the first ones do not count.",
            )
        result = []
        for layer, norms, values in zip(self._layers, self._norms, self._similarities, strict=True):
            similarities = dict(zip(LAGS, map(_mean, values), strict=True))
            result.append(
                LayerSensitivity(
                    layer=layer.name,
                    num_elements=sum(parameter.numel() for parameter in layer.parameters),
                    gradient_norm=_mean(norms),
                    similarities=similarities,
                    period=propose_period(list(similarities.values()), fraction),
                )
            )
        return result


def propose_period(similarities: Sequence[float | None], fraction: float) -> int:
    """The largest lag up to which gradients keep their direction: their similarity is at least `fraction` of
    that of neighbours. 1 for a layer whose neighbours have no direction in common.

    What gradients of different batches have in common is small even where nothing turns. So it is the
    decline that counts, not the height.

    Args:
        similarities: by lag, in the order of LAGS; None where nothing was seen.
        fraction: above 0, at most 1.
    """
    if not 0 < fraction <= 1:
        reject("fraction", fraction, "a number above 0 and at most 1", "Use 0.8 for a cautious proposal.")
    first = similarities[0]
    period = LAGS[0]
    if first is None or first <= 0:
        return period
    for lag, similarity in zip(LAGS[1:], similarities[1:], strict=True):
        if similarity is None or similarity < fraction * first:
            break
        period = lag
    return period


def _mean(values: Sequence[float]) -> float | None:
    return float(torch.tensor(values, dtype=torch.float64).mean()) if values else None
