"""The check of `benchmarks.timeline`: what it calls a violation."""

from __future__ import annotations

from benchmarks.plan_windows import Windows
from dreamddp import Event, EventKind, Op, Plan, Segment, Span, SpanKind

PLAN = Plan(
    planner="by hand",
    period=1,
    layers=["a", "b"],
    ops=[
        Op(
            [Segment(1)],
            launch=Event(0, EventKind.after_backward, 1),
            deadline=Event(0, EventKind.before_step),
        ),
        Op([Segment(0)], launch=Event(0, EventKind.after_step), deadline=Event(1, EventKind.before_forward)),
    ],
)


def span(kind: SpanKind, name: str, begin: float, end: float, iteration: int = 0) -> Span:
    return Span(kind, name, iteration=iteration, begin_seconds=begin, end_seconds=end)


COMPUTE = [
    span(SpanKind.forward, "a", 0, 1),
    span(SpanKind.forward, "b", 1, 2),
    span(SpanKind.backward, "b", 2, 3),
    span(SpanKind.backward, "a", 3, 4),
    span(SpanKind.backward, "", 4, 4.5),
    span(SpanKind.step, "step", 4.5, 4.6),
    span(SpanKind.wait, "step", 4.6, 6),
    span(SpanKind.step, "step", 6, 7),
    span(SpanKind.forward, "a", 7, 8, 1),
    span(SpanKind.wait, "a", 8, 9, 1),
    span(SpanKind.forward, "a", 9, 10, 1),
]
SIMULATED = [span(SpanKind.link, "op 1: 'a'", 0, 1), span(SpanKind.link, "op 0: 'b'", 2, 3)]


def windows(*links: Span) -> Windows:
    return Windows.of(PLAN, [*COMPUTE, *links], {}, range(1))


def test_ops_at_the_edges_of_their_windows_are_inside() -> None:
    seen = windows(span(SpanKind.link, "op 0: 'b'", 3, 6), span(SpanKind.link, "op 1: 'a'", 7, 9))
    assert seen.window_violations() == []
    assert seen.order_violations(SIMULATED) == []


def test_an_op_before_its_launch_event_is_named() -> None:
    seen = windows(span(SpanKind.link, "op 0: 'b'", 2.75, 6), span(SpanKind.link, "op 1: 'a'", 6.5, 9))
    assert seen.window_violations() == [
        "iteration 0, op 0: 'b': began 0.250000 s before its launch event",
        "iteration 0, op 1: 'a': began 0.500000 s before its launch event",
    ]


def test_an_op_after_its_deadline_is_named() -> None:
    seen = windows(span(SpanKind.link, "op 0: 'b'", 3, 6.25), span(SpanKind.link, "op 1: 'a'", 7, 9.5))
    assert seen.window_violations() == [
        "iteration 0, op 0: 'b': ended 0.250000 s after its deadline",
        "iteration 0, op 1: 'a': ended 0.500000 s after its deadline",
    ]


def test_ops_out_of_order_and_missing_ones_are_named() -> None:
    swapped = windows(span(SpanKind.link, "op 1: 'a'", 3, 6), span(SpanKind.link, "op 0: 'b'", 7, 9))
    assert swapped.order_violations(SIMULATED) == [
        "op 0 of 2 since iteration 0: (iteration, op) is (0, 1), planned is (0, 0)"
    ]
    missing = windows(span(SpanKind.link, "op 0: 'b'", 3, 6))
    assert missing.order_violations(SIMULATED) == [
        "op 1 of 2 since iteration 0: (iteration, op) is None, planned is (0, 1)"
    ]
