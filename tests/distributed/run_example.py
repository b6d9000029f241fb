"""Runs an example as torchrun does, and leaves in the current folder what its rank saw."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

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


def num_bytes(parameters: list[nn.Parameter]) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


if __name__ == "__main__":
    losses: list[float] = []
    backward = torch.Tensor.backward

    def watched_backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        losses.append(loss.item())
        backward(loss, *args, **kwargs)  # type: ignore[no-untyped-call]

    torch.Tensor.backward = watched_backward  # type: ignore[method-assign, assignment]
    dreamddp.DreamDDP = Watched  # type: ignore[misc]
    runpy.run_path(sys.argv[1], run_name="__main__")
    [sync] = Watched.instances
    stats, plan, parameters = sync.stats(), sync.plan, list(sync._model.parameters())
    assert plan is not None
    result = {
        "before": sync.before,
        "after": digest(sync._model),
        "losses": losses,
        "steps": sync.iteration,
        "sent_bytes": round(stats.bytes_per_iteration * stats.iterations),
        "trainable_bytes": num_bytes([parameter for parameter in parameters if parameter.requires_grad]),
        "planner": plan.planner,
        "period": plan.period,
        "layers": plan.layers,
        "keys": list(sync._model.state_dict()),
    }
    Path(f"rank-{os.environ['RANK']}.json").write_text(json.dumps(result))
