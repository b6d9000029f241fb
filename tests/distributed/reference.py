"""The algorithm in one process: K workers as K models, averaged as a plan says. Design section 3.

Knows nothing of hooks, lanes or time: backward-window ops average the weights before the step of their
iteration, forward-window ops those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from dreamddp import EventKind, Op, Plan
from dreamddp.layers import find_layers


def flat_layers(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    return {layer.name: list(layer.parameters) for layer in find_layers(model)}


def average(models: Sequence[nn.Module], plan: Plan, op: Op) -> None:
    layers = [flat_layers(model) for model in models]
    with torch.no_grad():
        for segment in op.segments:
            name = plan.layers[segment.layer]
            flats = [torch.cat([p.detach().reshape(-1) for p in layer[name]]) for layer in layers]
            size = flats[0].numel()
            begin, end = int(segment.begin * size), size if segment.end >= 1 else int(segment.end * size)
            mean = sum(flat[begin:end] for flat in flats[1:]) + flats[0][begin:end]
            mean = mean / len(models)
            for layer, flat in zip(layers, flats, strict=True):
                flat[begin:end] = mean
                offset = 0
                for parameter in layer[name]:
                    parameter.copy_(flat[offset : offset + parameter.numel()].view_as(parameter))
                    offset += parameter.numel()


def run_reference(
    models: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    compute_gradients: Callable[[int, nn.Module, int], None],
    plan: Plan,
    iterations: int,
    first_iteration: int = 0,
) -> None:
    """Runs `iterations` of all workers.

    Args:
        compute_gradients: called with rank, model and iteration; leaves the gradients in the model.
    """
    for iteration in range(first_iteration, first_iteration + iterations):
        ops = [op for op in plan.ops if op.launch.iteration == iteration % plan.period]
        for rank, model in enumerate(models):
            compute_gradients(rank, model, iteration)
        for op in ops:
            if op.launch.kind != EventKind.after_step:
                average(models, plan, op)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        for op in ops:
            if op.launch.kind == EventKind.after_step:
                average(models, plan, op)
