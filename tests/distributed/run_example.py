"""Runs an example as torchrun does, and leaves in the current folder what its rank's parameters were."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from pathlib import Path

import torch
from torch import nn

import dreamddp


def digest(model: nn.Module) -> str:
    """Of all parameters, bit by bit."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


class Watched(dreamddp.DreamDDP):
    """Remembers the model, and what it was before `finish()`."""

    instances: list[Watched] = []  # noqa: RUF012

    def finish(self, *, average_moments: bool = False) -> None:
        self.instances.append(self)
        self.before = digest(self._model)
        super().finish(average_moments=average_moments)


if __name__ == "__main__":
    dreamddp.DreamDDP = Watched  # type: ignore[misc]
    runpy.run_path(sys.argv[1], run_name="__main__")
    [sync] = Watched.instances
    result = {"before": sync.before, "after": digest(sync._model), "ops": sync.stats().ops_per_iteration}
    Path(f"rank-{os.environ['RANK']}.json").write_text(json.dumps(result))
