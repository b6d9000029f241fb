"""How fast gradients turn, and the command that says so. One process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dreamddp._core import LayerPolicies
from dreamddp.sensitivity import COLD_ITERATIONS, SensitivityWatch, propose_period


@pytest.mark.parametrize(
    ("similarities", "period"),
    [
        ([0.5, 0.5, 0.4, 0.4], 8),
        ([0.5, 0.5, 0.4, 0.39], 4),
        ([0.5, 0.39, 0.5, 0.5], 1),
        ([0.5, 0.6, None, 0.6], 2),
        ([-0.5, 0.5, 0.5, 0.5], 1),
        ([0.0, 0.5, 0.5, 0.5], 1),
        ([None, None, None, None], 1),
    ],
)
def test_a_period_ends_where_the_similarity_declines(similarities: list[float | None], period: int) -> None:
    assert propose_period(similarities, 0.8) == period


def test_fractions_out_of_range_are_refused() -> None:
    for fraction in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="fraction: got"):
            propose_period([0.5] * 4, fraction)


def test_similarities_are_means_over_what_follows_the_cold_iterations() -> None:
    # The first layer's gradient turns by 45 degrees an iteration, the second one's stays.
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False))
    watch = SensitivityWatch(model)
    with pytest.raises(ValueError, match="iterations: got 0; expected at least 17"):
        watch.layers(0.8)
    for iteration in range(24):
        angle = iteration * math.pi / 4
        if iteration >= COLD_ITERATIONS:
            model[0].weight.grad = 3 * torch.tensor([[math.cos(angle)], [math.sin(angle)]])
        model[1].weight.grad = torch.tensor([[1.0, 2.0]])
        watch.backward_ended()
    turning, steady = watch.layers(0.8)
    assert (turning.layer, steady.layer) == ("0", "1")
    assert (turning.num_elements, steady.num_elements) == (2, 2)
    assert turning.gradient_norm == pytest.approx(3)
    assert steady.gradient_norm == pytest.approx(math.sqrt(5))
    assert list(turning.similarities.values()) == pytest.approx([math.sqrt(0.5), 0, -1, 1], abs=1e-6)
    assert list(steady.similarities.values()) == pytest.approx([1, 1, 1, 1])
    assert (turning.period, steady.period) == (1, 8)
    assert watch.memory_bytes == 2 * 8 * 2 * 4


def run_sensitivity(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dreamddp", "sensitivity", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_proposes_policies_for_every_layer(tmp_path: Path) -> None:
    output = tmp_path / "policies.json"
    flags = ["--model", "mlp", "--iterations", "20", "--sketch", "0", "-o", str(output)]
    ended = run_sensitivity(*flags, "--json")
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    assert [layer["layer"] for layer in result["layers"]] == ["0", "2", "4"]
    elements = [8 * 64 + 64, 64 * 64 + 64, 64 * 256 + 256]
    assert [layer["num_elements"] for layer in result["layers"]] == elements
    assert result["memory_bytes"] == 4 * 8 * sum(elements)
    for layer in result["layers"]:
        assert layer["gradient_norm"] > 0
        assert list(layer["similarities"]) == ["1", "2", "4", "8"]
        assert all(-1 <= similarity <= 1 for similarity in layer["similarities"].values())
    policies = LayerPolicies(["0", "2", "4"], output.read_text())
    assert [d.limit for d in policies.decisions] == [layer["period"] for layer in result["layers"]]
    table = run_sensitivity(*flags).stdout
    assert "16,640" in table
    assert "lag 8" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fraction", "0"], "--fraction: got 0.0; expected a number above 0 and at most 1"),
        (["--iterations", "3"], "--iterations: got 3; expected at least 17"),
        (["--sketch", "-1"], "sketch_size: got -1"),
        (["--model", "huge"], "--model: got 'huge'"),
    ],
)
def test_bad_flags_are_named(arguments: list[str], message: str) -> None:
    ended = run_sensitivity("--model", "mlp", *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr
