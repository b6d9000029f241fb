"""Policies: rules that decide while training which layers are averaged next. Design section 10.

Give them by patterns of layer names, of which the first that matches decides::

    {"*.wte": FixedPeriod(8), "*": Combined(most_staleness=8)}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from dreamddp import _core


@dataclass(frozen=True)
class Policy:
    """What all policies have in common. Values: equal ones decide equally."""

    NAME: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        """As in a file of policies."""
        return {"policy": self.NAME} | {
            key: value.to_json() if isinstance(value, Policy) else value for key, value in vars(self).items()
        }


@dataclass(frozen=True)
class FixedPeriod(Policy):
    """Due once in every `period` iterations, by the calendar: in the last, or `phase` before it.

    Layers with different phases take turns, so that not all is sent at once; see `take_turns()`.
    """

    NAME = "fixed-period"
    period: int
    phase: int = 0


@dataclass(frozen=True)
class BoundedStaleness(Policy):
    """Due so many iterations after the last average, whoever decided that one."""

    NAME = "bounded-staleness"
    most: int


@dataclass(frozen=True, kw_only=True)
class Direction(Policy):
    """Due when the gradient no longer has the direction that it had at the layer's last average.

    Looks at the moving average m := smoothing m + (1 - smoothing) s of the cosine similarity s, averaged over
    ranks; m is 1 at an average. Without a limit of staleness the layer may never be averaged.

    Args:
        threshold: due below it; from -1 to 1.
        smoothing: at least 0 and below 1.
    """

    NAME = "direction"
    threshold: float = 0.5
    smoothing: float = 0.5


@dataclass(frozen=True, kw_only=True)
class AdaptiveDirection(Policy):
    """Like `Direction`, with a threshold that is a fraction of the layer's own usual similarity.

    Args:
        threshold: the fraction; above 0 and at most 1.
        smoothing: as in `Direction`.
        history_smoothing: the same for what is usual, which goes on over averages.
    """

    NAME = "adaptive-direction"
    threshold: float = 0.5
    smoothing: float = 0.5
    history_smoothing: float = 0.98


@dataclass(frozen=True, kw_only=True)
class Combined(Policy):
    """Bounded staleness as the hard limit over another policy. The recommended one."""

    NAME = "combined"
    most_staleness: int
    under: Policy = field(default_factory=Direction)


def take_turns(periods: Mapping[str, int], num_bytes: Mapping[str, float]) -> dict[str, FixedPeriod]:
    """Fixed periods for layers, with phases that give all iterations about equally much to send.

    Args:
        periods: by layer name.
        num_bytes: of the same layers.

    Raises:
        ValueError: for a period or a size out of range.
    """
    phases = _core.staggered_phases(list(periods.values()), [num_bytes[name] for name in periods])
    return {
        name: FixedPeriod(period, phase)
        for (name, period), phase in zip(periods.items(), phases, strict=True)
    }


Policies = Policy | Mapping[str, Policy] | str | Path
"""One for all layers, by patterns of layer names with `*` and `?`, or the path of a file of policies."""


def policies_from_json(text: str) -> dict[str, Policy]:
    """What `policies_json()` gave.

    Raises:
        ValueError: naming the pattern and the field that is out of range.
    """
    return {pattern: _policy(rule) for pattern, rule in json.loads(_core.normalized_policies(text)).items()}


def _policy(rule: Mapping[str, Any]) -> Policy:
    kinds: dict[str, type[Policy]] = {
        kind.NAME: kind for kind in (FixedPeriod, BoundedStaleness, Direction, AdaptiveDirection, Combined)
    }
    kind = kinds[rule["policy"]]
    return kind(
        **{key: _policy(value) if key == "under" else value for key, value in rule.items() if key != "policy"}
    )


def policies_json(policies: Policies) -> str:
    """The policies as the core takes them, with all keys.

    Raises:
        ValueError: naming the pattern and the field that is out of range.
        OSError: where a file cannot be read.
    """
    if isinstance(policies, str | Path):
        return _core.normalized_policies(Path(policies).read_text())
    rules = {"*": policies} if isinstance(policies, Policy) else dict(policies)
    for pattern, policy in rules.items():
        if not isinstance(policy, Policy):
            _core.reject(
                f"policies: pattern {pattern!r}",
                repr(policy),
                "a policy",
                "Write FixedPeriod(4), for example.",
            )
    return _core.normalized_policies(json.dumps({key: rule.to_json() for key, rule in rules.items()}))
