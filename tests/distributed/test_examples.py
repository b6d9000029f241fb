"""The examples as people start them: under torchrun, with two ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dreamddp.layers import LOOP

ROOT = Path(__file__).parents[2]
NEEDS = {
    "accelerate_script": ["accelerate"],
    "lightning_callback": ["lightning"],
    "peft_lora": ["transformers", "peft"],
    "plain_script": [],
    "transformers_trainer": ["transformers", "accelerate"],
}
# Optimizer steps: samples / (ranks * samples of a batch * batches of a step), or what the loop says.
STEPS = {
    "accelerate_script": 6400 // (2 * 32),
    "lightning_callback": 6400 // (2 * 32 * 2),
    "peft_lora": 60,
    "plain_script": 100,
    "transformers_trainer": 640 // (2 * 2 * 4),
}
PERIOD = 5

# Each run starts several interpreters that import torch: slow where many share few cores.
TIMEOUT_SECONDS = 280
pytestmark = pytest.mark.timeout(300)


def run(script: Path, name: str, folder: Path) -> list[dict[str, Any]]:
    """What each rank saw."""
    for package in NEEDS[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{name} needs the package {package}: pip install -r requirements/setup.txt")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, "-m", "tests.distributed.run_example", str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall(r"loss \d+\.\d+ SyncStats\(", ended.stdout)) == 1
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


def check(results: list[dict[str, Any]], steps: int) -> None:
    first, second = results
    # Were gradients averaged as well (by a wrapper that the framework adds), the ranks would never differ.
    assert first["before"] != second["before"]
    assert first["after"] == second["after"]
    for result in results:
        assert result["steps"] == steps
        assert (result["planner"], result["period"]) == ("balanced", PERIOD)
        assert result["sent_bytes"] >= result["trainable_bytes"] * (steps // PERIOD) > 0
        losses = result["losses"]
        tenth = len(losses) // 10
        assert sum(losses[-tenth:]) < 0.95 * sum(losses[:tenth])


def test_every_example_is_tested() -> None:
    assert sorted(path.stem for path in (ROOT / "examples").glob("*.py")) == sorted(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_ranks_learn_are_averaged_and_end_equal(name: str, tmp_path: Path) -> None:
    results = run(ROOT / "examples" / f"{name}.py", name, tmp_path)
    check(results, STEPS[name])
    if name == "peft_lora":
        assert {"lora" in layer for layer in results[0]["layers"] if layer != LOOP} == {True}


# Of an example: what to replace by what so that rank 0 saves while training, and where the first file lies.
SAVING = {
    "accelerate_script": (
        "    optimizer.zero_grad()\n",
        "    optimizer.zero_grad()\n"
        "    if accelerator.is_main_process:\n"
        "        accelerator.save(model.state_dict(), 'model.safetensors', safe_serialization=True)\n",
        "model.safetensors",
    ),
    "lightning_callback": (
        "    enable_checkpointing=False,\n",
        "    callbacks=[\n"
        "        callback, lightning.pytorch.callbacks.ModelCheckpoint('.', every_n_train_steps=7)\n"
        "    ],\n",
        "*.ckpt",
    ),
    "transformers_trainer": (
        'save_strategy="no"',
        "output_dir='.', save_strategy='steps', save_steps=7",
        "checkpoint-7/model.safetensors",
    ),
}


@pytest.mark.parametrize("name", SAVING)
def test_a6_rank_0_saves_while_training(name: str, tmp_path: Path) -> None:
    old, new, pattern = SAVING[name]
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert text.count(old) == 1
    if name == "lightning_callback":
        text = text.replace("    callbacks=[callback],\n", "")
    script = tmp_path / "saving.py"
    script.write_text(text.replace(old, new))
    results = run(script, name, tmp_path)
    check(results, STEPS[name])
    [saved] = tmp_path.glob(pattern)
    if saved.suffix == ".ckpt":
        checkpoint = torch.load(saved, weights_only=True)
        assert checkpoint["global_step"] == 49
        keys = [key.removeprefix("net.") for key in checkpoint["state_dict"]]
    else:
        from safetensors.torch import load_file

        keys = list(load_file(saved))
    assert sorted(keys) == sorted(results[0]["keys"])
