"""What a record must hold for a report: the fields that are read, and their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dreamddp._core import reject
from dreamddp.plotting.palette import RULE_COLOURS

REMEDY = "Remove the line, or train again."


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _one_of(*texts: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in texts


_TIME = (lambda value: _number(value) and value >= 0, "a number of at least 0")
_POSITIVE = (lambda value: _number(value) and value > 0, "a number above 0")
_NUMBER_OR_NULL = (_or_null(_number), "a number or null")
_WHOLE = (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number")
_TEXT = (lambda value: isinstance(value, str), "a text")
_ANY = (lambda value: not isinstance(value, dict | list), "a text or a number")
_TRUTH = (lambda value: isinstance(value, bool), "true or false")


def _objects(fields: Mapping[str, Callable[[Any], bool]]) -> Callable[[Any], bool]:
    """A list of objects with these fields, at least one."""
    return lambda value: (
        isinstance(value, list)
        and value != []
        and all(
            isinstance(item, dict)
            and all(name in item and check(item[name]) for name, check in fields.items())
            for item in value
        )
    )


_DECISION = {
    "layer": _TEXT[0],
    "is_due": _TRUTH[0],
    "rule": _one_of(*RULE_COLOURS),
    "value": _NUMBER_OR_NULL[0],
    "limit": _NUMBER_OR_NULL[0],
    "treatment": _TEXT[0],
    "similarity": _NUMBER_OR_NULL[0],
}

Check = tuple[Callable[[Any], bool], str]
FIELDS: Mapping[str, Mapping[str, Check]] = {
    "run": {
        "begin": _TEXT,
        "config.model": _TEXT,
        "config.data": (_or_null(lambda value: isinstance(value, str)), "a text or null"),
        "config.steps": _WHOLE,
        "config.batch_size": _WHOLE,
        "machine.system": _TEXT,
        "machine.processor": _TEXT,
        "machine.cores": (_or_null(_WHOLE[0]), "a whole number or null"),
        "machine.python": _TEXT,
        "versions": (lambda value: isinstance(value, dict), "an object"),
    },
    "link": {
        "emulated": _TRUTH,
        "bandwidth_bytes_per_second": (
            _or_null(lambda value: _number(value) and value > 0),
            "a number above 0, or null",
        ),
        "latency_seconds": _TIME,
        "workers": _WHOLE,
    },
    "profile": {
        "profile.layers": (_objects({"num_bytes": _NUMBER_OR_NULL[0]}), "a list of layers with num_bytes")
    },
    "decisions": {
        "planner": _TEXT,
        "iteration": _WHOLE,
        "layers": (_objects(_DECISION), f"a list of objects with {', '.join(_DECISION)}"),
    },
    "plan": {
        "planner": _TEXT,
        "period": _ANY,
        "iteration_seconds": _TIME,
        "compute_seconds": _TIME,
        "exposed_seconds": _TIME,
    },
    "step": {"planner": _TEXT, "step": _WHOLE, "loss": _NUMBER_OR_NULL, "elapsed_seconds": _TIME},
    "span": {
        "planner": _TEXT,
        "source": (_one_of("run", "simulation"), '"run" or "simulation"'),
        "rank": _WHOLE,
        "iteration": _WHOLE,
        "span": _TEXT,
        "name": _TEXT,
        "begin_seconds": (_number, "a number"),
        "end_seconds": (_number, "a number"),
    },
    "row": {
        "planner": _TEXT,
        "period": _ANY,
        "iteration_seconds": _POSITIVE,
        "predicted_seconds": _TIME,
        "compute_seconds": _TIME,
        "exposed_seconds": _TIME,
        "bytes_per_iteration": _NUMBER_OR_NULL,
        "speedup": _NUMBER_OR_NULL,
        "final_loss": _NUMBER_OR_NULL,
        "loss_at_equal_steps": _NUMBER_OR_NULL,
        "loss_at_equal_time": _NUMBER_OR_NULL,
        "rank_spread": _NUMBER_OR_NULL,
    },
}
"""By kind and by field, with dots into objects. Records of other kinds are passed over."""


def check_fields(place: str, record: Mapping[str, Any]) -> None:
    """Raises ValueError naming the place and the first field that a report could not be made of."""
    for field, (is_valid, allowed) in FIELDS.get(record["kind"], {}).items():
        value: Any = record
        for part in field.split("."):
            if not isinstance(value, dict) or part not in value:
                reject(f"{place}, {record['kind']}: {field}", "nothing", allowed, REMEDY)
            value = value[part]
        if not is_valid(value):
            reject(f"{place}, {record['kind']}: {field}", repr(value)[:60], allowed, REMEDY)
