"""The algorithm in one process: K workers as K models, averaged as a plan says. Design section 3.

Knows nothing of hooks, lanes or time. Weights are averaged as they are at an op's launch; the result is
written at once (averages in place: nobody reads or writes in between), before the step of the deadline
(held), or added as a difference at the deadline (carried). Gradients are averaged behind the backward. Where
updates are fused, every average in place is of weights that have been stepped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dreamddp import EventKind, Op, OpMode, Plan, Profile, Quantity, Segment, Update
from dreamddp._core import op_mode
from dreamddp.layers import find_layers


def flat_layers(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    return {layer.name: list(layer.parameters) for layer in find_layers(model)}


@dataclass(eq=False)
class Averaging:
    """One execution of an op; the lists are by segment."""

    op: Op
    iteration: int
    """Of the deadline."""
    mode: OpMode
    means: list[torch.Tensor]
    snapshots: list[list[torch.Tensor]]
    """Of each model."""


def read_segments(model: nn.Module, plan: Plan, op: Op) -> list[torch.Tensor]:
    layers = flat_layers(model)
    values = []
    for segment in op.segments:
        flat = torch.cat([p.detach().reshape(-1) for p in layers[plan.layers[segment.layer]]])
        values.append(flat[slice(*elements_of(segment, flat.numel()))].clone())
    return values


def write_segments(model: nn.Module, plan: Plan, op: Op, values: Sequence[torch.Tensor]) -> None:
    layers = flat_layers(model)
    with torch.no_grad():
        for segment, value in zip(op.segments, values, strict=True):
            parameters = layers[plan.layers[segment.layer]]
            flat = torch.cat([p.detach().reshape(-1) for p in parameters])
            flat[slice(*elements_of(segment, flat.numel()))] = value
            offset = 0
            for parameter in parameters:
                parameter.copy_(flat[offset : offset + parameter.numel()].view_as(parameter))
                offset += parameter.numel()


def elements_of(segment: Segment, size: int) -> tuple[int, int]:
    return int(segment.begin * size), size if segment.end >= 1 else int(segment.end * size)


def average_gradients(models: Sequence[nn.Module], plan: Plan, op: Op) -> None:
    """A gradient that is missing counts as zero, and stays missing where no model has it."""
    for segment in op.segments:
        name = plan.layers[segment.layer]
        per_model = [flat_layers(model)[name] for model in models]
        size = sum(parameter.numel() for parameter in per_model[0])
        begin, end = elements_of(segment, size)
        offset = 0
        for parameters in zip(*per_model, strict=True):
            part = slice(max(begin - offset, 0), max(end - offset, 0))
            offset += parameters[0].numel()
            if all(parameter.grad is None for parameter in parameters):
                continue
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            gradients = [parameter.grad.view(-1)[part] for parameter in parameters]
            mean = (sum(gradients[1:]) + gradients[0]) / len(models)
            for gradient in gradients:
                gradient.copy_(mean)


def launch(models: Sequence[nn.Module], plan: Plan, op: Op, iteration: int, mode: OpMode) -> Averaging:
    snapshots = [read_segments(model, plan, op) for model in models]
    means = [(sum(values[1:]) + values[0]) / len(models) for values in zip(*snapshots, strict=True)]
    deadline = iteration + op.deadline.iteration - op.launch.iteration
    return Averaging(op, deadline, mode, means, snapshots)


def apply(averaging: Averaging, models: Sequence[nn.Module], plan: Plan, others: Sequence[Averaging]) -> None:
    """Where a carried op is launched again before its mean is applied, the difference is added to the later
    snapshot too: else the same deviation would be corrected twice."""
    op = averaging.op
    for rank, model in enumerate(models):
        if averaging.mode is not OpMode.carried:
            write_segments(model, plan, op, averaging.means)
            continue
        pairs = zip(averaging.means, averaging.snapshots[rank], strict=True)
        differences = [mean - snapshot for mean, snapshot in pairs]
        values = zip(read_segments(model, plan, op), differences, strict=True)
        write_segments(model, plan, op, [value + difference for value, difference in values])
        for other in others:
            if other.op is op:
                for snapshot, difference in zip(other.snapshots[rank], differences, strict=True):
                    snapshot += difference


def run_reference(
    models: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    compute_gradients: Callable[[int, nn.Module, int], None],
    plan: Plan,
    profile: Profile,
    iterations: int,
    first_iteration: int = 0,
) -> None:
    """Runs `iterations` of all workers, and then ends what is under way.

    Args:
        compute_gradients: called with rank, model and iteration; leaves the gradients in the model.
        profile: says when layers are read.
    """
    if plan.update is Update.fused:
        end = first_iteration + iterations
        _run_fused(models, optimizers, compute_gradients, plan, range(first_iteration, end))
        return
    under_way: list[Averaging] = []
    plan_ops = plan.ops  # objects to tell executions of one op by

    def launch_all(ops: Sequence[Op], iteration: int, after_step: bool) -> None:
        for op in ops:
            if (op.launch.kind is EventKind.after_step) == after_step:
                averaging = launch(models, plan, op, iteration, op_mode(op, profile))
                if averaging.mode is OpMode.in_place:
                    apply(averaging, models, plan, [])
                else:
                    under_way.append(averaging)

    def apply_due(iteration: int, deadlines: tuple[EventKind, ...]) -> None:
        for averaging in list(under_way):
            if averaging.iteration == iteration and averaging.op.deadline.kind in deadlines:
                under_way.remove(averaging)
                apply(averaging, models, plan, under_way)

    for iteration in range(first_iteration, first_iteration + iterations):
        ops = [op for op in plan_ops if op.launch.iteration == iteration % plan.period]
        apply_due(iteration, (EventKind.before_forward,))
        for rank, model in enumerate(models):
            compute_gradients(rank, model, iteration)
        for op in ops:
            if op.quantity is Quantity.gradients:
                average_gradients(models, plan, op)
        ops = [op for op in ops if op.quantity is Quantity.parameters]
        launch_all(ops, iteration, after_step=False)
        apply_due(iteration, (EventKind.before_step,))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        launch_all(ops, iteration, after_step=True)
    for averaging in list(under_way):
        under_way.remove(averaging)
        apply(averaging, models, plan, under_way)


def _run_fused(
    models: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    compute_gradients: Callable[[int, nn.Module, int], None],
    plan: Plan,
    iterations: range,
) -> None:
    def average(ops: Sequence[Op], iteration: int) -> None:
        for op in ops:
            apply(launch(models, plan, op, iteration, OpMode.in_place), models, plan, [])

    for iteration in iterations:
        ops = [op for op in plan.ops if op.launch.iteration == iteration % plan.period]
        in_forward = [op for op in ops if op.launch.kind is EventKind.after_forward]
        average(in_forward, iteration)
        for rank, model in enumerate(models):
            compute_gradients(rank, model, iteration)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        average([op for op in ops if op.launch.kind is not EventKind.after_forward], iteration)
