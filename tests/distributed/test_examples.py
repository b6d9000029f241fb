"""The examples as people start them: under torchrun, with two ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {
    "accelerate_script": ["accelerate"],
    "lightning_callback": ["lightning"],
    "peft_lora": ["transformers", "peft"],
    "plain_script": [],
    "transformers_trainer": ["transformers", "accelerate"],
}

# Each run starts several interpreters that import torch: slow where many share few cores.
TIMEOUT_SECONDS = 280
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_ranks_differ_while_training_and_end_equal(example: Path, tmp_path: Path) -> None:
    for package in NEEDS[example.stem]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{example.name} needs the package {package}: pip install -r requirements/setup.txt")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, "-m", "tests.distributed.run_example", str(example)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall(r"loss \d+\.\d+ SyncStats\(", ended.stdout)) == 1
    results = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    # Were gradients averaged as well (by a wrapper that the framework adds), the ranks would never differ.
    assert results[0]["before"] != results[1]["before"]
    assert results[0]["after"] == results[1]["after"]
    assert all(result["ops"] > 0 for result in results)
