"""Statistics of gradients against plain PyTorch. One process."""

from __future__ import annotations

import math

import pytest
import torch

from dreamddp._runtime import GradientStatistics

LAGS = [1, 2, 4, 8]


def parameters_of_layers() -> list[list[torch.Tensor]]:
    shapes: list[list[tuple[int, ...]]] = [[(16, 8), (16,)], [(3, 5)], [(), (7, 2)]]
    return [[torch.zeros(shape, requires_grad=True) for shape in layer] for layer in shapes]


def set_gradients(layers: list[list[torch.Tensor]], generator: torch.Generator) -> list[torch.Tensor]:
    """Sets random gradients; returns them, flattened by layer."""
    for layer in layers:
        for parameter in layer:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
    return [flat(layer) for layer in layers]


def flat(layer: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([p.grad.double().flatten() for p in layer if p.grad is not None])


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def test_whole_gradients_are_those_of_pytorch() -> None:
    layers = parameters_of_layers()
    statistics = GradientStatistics(layers, lags=LAGS, sketch_size=0)
    elements = [16 * 8 + 16, 15, 15]
    assert statistics.memory_bytes == 4 * (8 + 1) * sum(elements)
    generator = torch.Generator().manual_seed(1)
    history: list[list[torch.Tensor]] = []
    last_average: list[torch.Tensor | None] = [None] * len(layers)
    for iteration in range(20):
        gradients = set_gradients(layers, generator)
        for index, gradient in enumerate(gradients):
            is_averaged = iteration % (index + 2) == 0
            statistics.observe(index, is_averaged=is_averaged)
            seen = statistics[index]
            assert seen.norm == pytest.approx(float(gradient.norm()), rel=1e-5)
            for lag, similarity in zip(LAGS, seen.lag_similarities, strict=True):
                if lag > iteration:
                    assert math.isnan(similarity)
                else:
                    assert similarity == pytest.approx(cosine(gradient, history[-lag][index]), abs=1e-5)
            reference = last_average[index]
            if reference is None:
                assert math.isnan(seen.last_average_similarity)
            else:
                assert seen.last_average_similarity == pytest.approx(cosine(gradient, reference), abs=1e-5)
            if is_averaged or reference is None:
                last_average[index] = gradient
        history.append(gradients)
        statistics.iteration_ends()


def test_sketches_are_as_exact_as_they_say() -> None:
    size = 251
    weight = torch.zeros(300, 400, requires_grad=True)
    bias = torch.zeros(1000, requires_grad=True)
    generator = torch.Generator().manual_seed(2)
    errors, norm_errors = [], []
    for _ in range(60):
        statistics = GradientStatistics([[weight, bias]], lags=[1], sketch_size=size)
        before = torch.randn(121_000, generator=generator)
        after = 0.6 * before + 0.8 * torch.randn(121_000, generator=generator)
        for gradient in (before, after):
            weight.grad = gradient[:120_000].view(300, 400)
            bias.grad = gradient[120_000:]
            statistics.observe(0, is_averaged=True)
            seen = statistics[0]
            norm_errors.append(seen.norm / float(gradient.norm()) - 1)
            if gradient is before:
                statistics.iteration_ends()
        exact = cosine(before, after)
        errors.append(seen.lag_similarities[0] - exact)
        assert seen.last_average_similarity == pytest.approx(seen.lag_similarities[0], abs=1e-6)
    said = (1 - 0.6**2) / math.sqrt(size)
    assert 0.7 * said < float(torch.tensor(errors).square().mean().sqrt()) < 1.3 * said
    assert float(torch.tensor(norm_errors).square().mean().sqrt()) < 1.3 * math.sqrt(0.5 / size)
    assert statistics.memory_bytes == 4 * 2 * size


def test_small_layers_are_not_sketched() -> None:
    parameter = torch.zeros(50, requires_grad=True)
    statistics = GradientStatistics([[parameter]], lags=[1], sketch_size=50)
    parameter.grad = torch.arange(50.0)
    statistics.observe(0, is_averaged=False)
    assert statistics[0].norm == pytest.approx(float(torch.arange(50.0).norm()), rel=1e-6)


def test_absent_and_zero_gradients_are_compared_with_nothing() -> None:
    parameter = torch.zeros(4, requires_grad=True)
    statistics = GradientStatistics([[parameter], []], lags=[1, 2], sketch_size=0)
    ones = torch.ones(4)
    expected = {0: (math.nan, math.nan), 1: (1.0, math.nan), 3: (math.nan, 1.0), 4: (math.nan,) * 2}
    for iteration, gradient in enumerate([ones, 2 * ones, None, ones, 0 * ones]):
        parameter.grad = gradient
        statistics.observe(0, is_averaged=False)
        statistics.observe(1, is_averaged=False)
        found = statistics[0].lag_similarities
        assert found == pytest.approx(expected.get(iteration, (math.nan, math.nan)), nan_ok=True)
        assert math.isnan(statistics[0].norm) == (gradient is None)
        assert math.isnan(statistics[1].norm)
        statistics.iteration_ends()


def test_a_state_goes_on_exactly() -> None:
    layers = parameters_of_layers()
    generator = torch.Generator().manual_seed(3)
    whole = GradientStatistics(layers, lags=[1, 3], sketch_size=10)
    resumed = GradientStatistics(layers, lags=[1, 3], sketch_size=10)

    def observe(statistics: GradientStatistics, iteration: int) -> list[list[float]]:
        for index in range(len(layers)):
            statistics.observe(index, is_averaged=iteration % 3 == index)
        seen = [statistics[index] for index in range(len(layers))]
        statistics.iteration_ends()
        return [[s.norm, s.last_average_similarity, *s.lag_similarities] for s in seen]

    for iteration in range(5):
        set_gradients(layers, generator)
        observe(whole, iteration)
    for index in range(len(layers)):
        resumed.set_state(index, *whole.state(index))
    for iteration in range(5, 12):
        set_gradients(layers, generator)
        assert observe(resumed, iteration) == observe(whole, iteration)
    with pytest.raises(ValueError, match=r"layer 0: got 4 x 10 numbers; expected 2 x 10"):
        GradientStatistics(layers, lags=[1], sketch_size=10).set_state(0, *whole.state(0))


@pytest.mark.parametrize("lags", [[0], [2, 1], [1, 1], [1001]])
def test_lags_out_of_range_are_refused(lags: list[int]) -> None:
    with pytest.raises(ValueError, match="lags: got"):
        GradientStatistics([], lags=lags)
    with pytest.raises(ValueError, match="sketch_size: got -1"):
        GradientStatistics([], sketch_size=-1)
