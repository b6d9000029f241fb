"""Spans of timelines as records, and as one trace of all planners."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dreamddp._core import Span, SpanKind, to_chrome_trace

TRACE_PROCESSES_PER_PLANNER = 1000

SpanFields = dict[str, Any]


def span_fields(span: Span) -> SpanFields:
    """The span as a plain object, which can be sent between ranks and written as JSON."""
    return {
        "span": span.kind.name,
        "name": span.name,
        "rank": span.rank,
        "iteration": span.iteration,
        "begin_seconds": span.begin_seconds,
        "end_seconds": span.end_seconds,
    }


def span_record(fields: SpanFields, planner: str, source: str, zero_seconds: float) -> dict[str, Any]:
    """The `span` record; its times count from `zero_seconds`. The source is `run` or `simulation`."""
    return {
        "kind": "span",
        "source": source,
        "planner": planner,
        **fields,
        "begin_seconds": fields["begin_seconds"] - zero_seconds,
        "end_seconds": fields["end_seconds"] - zero_seconds,
    }


def span_of(fields: Mapping[str, Any]) -> Span:
    """The inverse of span_fields()."""
    return Span(
        SpanKind[fields["span"]],
        fields["name"],
        rank=fields["rank"],
        iteration=fields["iteration"],
        begin_seconds=fields["begin_seconds"],
        end_seconds=fields["end_seconds"],
    )


def make_trace(timelines: Mapping[str, Iterable[Span]]) -> str:
    """One Chrome trace of several timelines: the processes of each are named after it."""
    events: list[dict[str, Any]] = []
    whole: dict[str, Any] = {}
    for index, (title, spans) in enumerate(timelines.items()):
        trace = json.loads(to_chrome_trace(list(spans)))
        whole = {name: value for name, value in trace.items() if name != "traceEvents"}
        for event in trace["traceEvents"]:
            event["pid"] += index * TRACE_PROCESSES_PER_PLANNER
            if event.get("name") == "process_name":
                event["args"]["name"] = f"{title}: {event['args']['name']}"
        events += trace["traceEvents"]
    return json.dumps(whole | {"traceEvents": events})
