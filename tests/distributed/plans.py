"""Plans written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from dreamddp import Event, EventKind, Op, Plan, Segment, Update


def both_windows_plan(layers: Sequence[str], period: int) -> Plan:
    """Layers in turn over the iterations; the first half of each layer in the backward window, the rest in
    the forward window."""
    ops: list[Op] = []
    for iteration in range(period):
        mine = [index for index in range(len(layers)) if index % period == iteration]
        for index in reversed(mine):
            ops.append(
                Op(
                    [Segment(index, 0.0, 0.5)],
                    launch=Event(iteration, EventKind.after_backward, index),
                    deadline=Event(iteration, EventKind.before_step),
                )
            )
        for index in mine:
            ops.append(
                Op(
                    [Segment(index, 0.5, 1.0)],
                    launch=Event(iteration, EventKind.after_step),
                    deadline=Event(iteration + 1, EventKind.before_forward, index),
                )
            )
    return Plan(planner="by hand", period=period, layers=layers, ops=ops)


def forward_window_plan(layers: Sequence[str]) -> Plan:
    """Period 1: every layer in an op of its own, from the step to its next forward."""
    return Plan(
        planner="by hand",
        period=1,
        layers=layers,
        ops=[
            Op(
                [Segment(index)],
                launch=Event(0, EventKind.after_step),
                deadline=Event(1, EventKind.before_forward, index),
            )
            for index in range(len(layers))
        ],
    )


def early_window_plan(layers: Sequence[str], early: str) -> Plan:
    """Period 1: `early` from the end of its forward, the others together in the backward window."""
    index = list(layers).index(early)
    others = [i for i in range(len(layers)) if i != index]
    return Plan(
        planner="by hand",
        period=1,
        layers=layers,
        ops=[
            Op(
                [Segment(index)],
                launch=Event(0, EventKind.after_forward, index),
                deadline=Event(0, EventKind.before_step),
            ),
            Op(
                [Segment(i) for i in others],
                launch=Event(0, EventKind.after_backward, others[0]),
                deadline=Event(0, EventKind.before_step),
            ),
        ],
    )


def whole_backward_plan(layers: Sequence[str], period: int = 1) -> Plan:
    """Everything in one op of the last iteration's backward window."""
    return Plan(
        planner="by hand",
        period=period,
        layers=layers,
        ops=[
            Op(
                [Segment(i) for i in range(len(layers))],
                launch=Event(period - 1, EventKind.after_backward, 0),
                deadline=Event(period - 1, EventKind.before_step),
            )
        ],
    )


def fused_backward_plan(layers: Sequence[str], period: int) -> Plan:
    """Fused updates: every layer in one of the iterations, from its own backward to its next forward."""
    ops = [
        Op(
            [Segment(index)],
            launch=Event(iteration, EventKind.after_backward, index),
            deadline=Event(iteration + 1, EventKind.before_forward, index),
        )
        for iteration in range(period)
        for index in reversed(range(iteration, len(layers), period))
    ]
    return Plan(planner="by hand", period=period, layers=layers, ops=ops, update=Update.fused)
