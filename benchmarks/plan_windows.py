"""Whether a recorded timeline kept to its plan: ops in order, each inside its window."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dreamddp import Event, EventKind, Plan, Span, SpanKind

ForwardEnds = Mapping[tuple[int, str], float]
"""When the forward of a layer ended, by iteration and layer: spans do not say it, as a layer's span goes on
until the next layer is read."""


@dataclass(frozen=True)
class Windows:
    """The windows of a plan in the timeline of one rank, which must hold its iterations from first to last,
    and the one after them."""

    plan: Plan
    compute: list[Span]
    """Forward, backward, step and wait, ordered by begin."""
    links: list[Span]
    """The ops launched in those iterations, ordered by begin."""
    forward_ends: ForwardEnds
    iterations: range

    @staticmethod
    def of(plan: Plan, spans: Sequence[Span], forward_ends: ForwardEnds, iterations: range) -> Windows:
        ordered = sorted(spans, key=lambda span: span.begin_seconds)
        compute = [span for span in ordered if span.kind is not SpanKind.link]
        links = [span for span in ordered if span.kind is SpanKind.link and span.iteration in iterations]
        return Windows(plan, compute, links, forward_ends, iterations)

    def order_violations(self, simulated: Sequence[Span]) -> list[str]:
        """Where the ops differ from those of a simulated period, repeated.

        A simulated period may begin with what follows the last step of the period before.
        """
        period = self.plan.period
        once = [(span.iteration, op_of(span)) for span in simulated if span.kind is SpanKind.link]
        begin = next((i for i, (_, op) in enumerate(once) if op == 0), 0)
        once = once[begin:] + once[:begin]
        first, last = self.iterations.start, self.iterations.stop
        expected = [(start + i, op) for start in range(first, last, period) for i, op in once]
        seen = [(span.iteration, op_of(span)) for span in self.links]
        if seen == expected:
            return []
        pairs = zip([*seen, None], [*expected, None], strict=False)
        place = next(i for i, (real, planned) in enumerate(pairs) if real != planned)
        return [
            f"op {place} of {len(expected)} since iteration {first}: (iteration, op) is "
            f"{dict(enumerate(seen)).get(place)}, planned is {dict(enumerate(expected)).get(place)}"
        ]

    def window_violations(self) -> list[str]:
        """Ops that began before their launch event, or ended after their deadline event began."""
        found = []
        for span in self.links:
            op = self.plan.ops[op_of(span)]
            delay = op.deadline.iteration - op.launch.iteration
            early = self._launched_seconds(op.launch, span.iteration) - span.begin_seconds
            late = span.end_seconds - self._deadline_seconds(op.deadline, span.iteration + delay)
            text = f"iteration {span.iteration}, {span.name}"
            if early > 0:
                found.append(f"{text}: began {early:.6f} s before its launch event")
            if late > 0:
                found.append(f"{text}: ended {late:.6f} s after its deadline")
        return found

    def _launched_seconds(self, event: Event, iteration: int) -> float:
        """When the event had come. A layer without a backward of its own counts with the last backward."""
        layer = self.plan.layers[event.layer]
        if event.kind is EventKind.after_forward:
            return self.forward_ends[iteration, layer]
        kind = SpanKind.step if event.kind is EventKind.after_step else SpanKind.backward
        spans = [span for span in self.compute if span.kind is kind and span.iteration == iteration]
        if event.kind is EventKind.after_step:
            return spans[-1].end_seconds
        named = [span for span in spans if span.name == layer]
        return named[0].end_seconds if named else [span for span in spans if span.name][-1].end_seconds

    def _deadline_seconds(self, event: Event, iteration: int) -> float:
        """When compute went on with the event: after its wait, where it had one."""
        layer = self.plan.layers[event.layer]
        is_step = event.kind is EventKind.before_step
        kind, name = (SpanKind.step, "step") if is_step else (SpanKind.forward, layer)
        first = next(
            span
            for span in self.compute
            if span.kind is kind and span.iteration == iteration and span.name == name
        )
        moment = first.begin_seconds
        follows = bisect_left(self.compute, first.end_seconds, key=lambda span: span.begin_seconds)
        if follows < len(self.compute) and self.compute[follows].kind is SpanKind.wait:
            moment = self.compute[follows].end_seconds
        return moment


def op_of(span: Span) -> int:
    """The op's number in the plan: link spans are named "op 3: .."."""
    return int(span.name.partition(":")[0].removeprefix("op "))
