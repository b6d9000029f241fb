"""Policies in a running training: handed to the engine, saved, predicted and shown. Design section 10."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dreamddp import _core
from dreamddp._core import Link, Plan, Profile
from dreamddp._runtime import Engine
from dreamddp.policies import Policies, policies_json

if TYPE_CHECKING:
    from dreamddp._runtime import PolicyState

PLANNER = "policy"
"""What a plan of policies says of its planner; it has no ops, as each iteration has its own."""


@dataclass(frozen=True, kw_only=True)
class LayerDecision:
    """What became of one layer in one iteration, and why."""

    layer: str
    is_due: bool
    rule: str
    """That made it due, or that was asked last: `fixed-period`, `bounded-staleness`, .."""
    value: float
    """What the rule looked at."""
    limit: float
    """What it was compared with."""
    treatment: str
    """`skipped`, `alone`, or `merged`: averaged together with other layers."""
    similarity: float | None
    """Agreed in the iteration before: cosine of the gradient with that of the layer's last average."""
    gradient_norm: float | None
    """Agreed in the iteration before; None where no policy looks at the layer's gradient."""


@dataclass(frozen=True, kw_only=True)
class IterationDecisions:
    """What the policies decided about one iteration; the same on all ranks."""

    iteration: int
    layers: tuple[LayerDecision, ...]


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """What the user asked for."""

    policies: Policies
    sketch_size: int
    """Numbers that stand for a gradient; 0: whole copies."""


def plan_of_policies(profile: Profile) -> Plan:
    """The plan without ops that stands for what policies decide."""
    return Plan(planner=PLANNER, period=1, layers=[layer.name for layer in profile.layers], ops=[])


def carry_out(
    engine: Engine, options: PolicyOptions, profile: Profile, link: Link, state: str | None
) -> None:
    """Lets policies decide from the next backward on; the engine's plan has no ops."""
    engine.set_policy(
        policies_json(options.policies),
        profile.to_json(),
        (link.bandwidth_bytes_per_second, link.latency_seconds, link.in_flight, link.workers),
        slack=_core.training_slack,
        sketch_size=options.sketch_size,
        state=None if not state else _from_text(state),
    )


def save(engine: Engine) -> str:
    """What the policies go on from, as text. Waits for what ranks are agreeing on."""
    file = io.BytesIO()
    torch.save(engine.policy_state(), file)
    return base64.b64encode(file.getvalue()).decode("ascii")


def _from_text(text: str) -> PolicyState:
    state: PolicyState = torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
    return state


def shared_part(text: str) -> str:
    """Of what `save()` gave, that which is equal on all ranks: rules with their counters."""
    return _from_text(text)[0] if text else ""


def decisions(engine: Engine, layers: Sequence[str]) -> list[IterationDecisions]:
    """Of the latest iterations, at most 4096, the oldest first."""

    def known(value: float | None) -> float | None:
        return None if value is None or math.isnan(value) else value

    return [
        IterationDecisions(
            iteration=iteration,
            layers=tuple(
                LayerDecision(
                    layer=layer,
                    is_due=is_due,
                    rule=rule,
                    value=value,
                    limit=limit,
                    treatment=treatment,
                    similarity=known(similarity),
                    gradient_norm=known(norm) or None,
                )
                for layer, (is_due, rule, value, limit, treatment, similarity, norm) in zip(
                    layers, rows, strict=True
                )
            ),
        )
        for iteration, rows in engine.decisions()
    ]


class Prediction:
    """Simulated times of the iterations that policies decided about, with the measured rate of decisions."""

    def __init__(self, profile: Profile, link: Link) -> None:
        self._profile = profile
        self._link = link
        self._seconds: dict[frozenset[str], float] = {}

    def mean_seconds(self, decided: Sequence[IterationDecisions]) -> float | None:
        """Mean over the iterations; None without any."""
        if not decided:
            return None
        counts = Counter(frozenset(layer.layer for layer in it.layers if layer.is_due) for it in decided)
        return sum(self._seconds_with(due) * count for due, count in counts.items()) / len(decided)

    def _seconds_with(self, due: frozenset[str]) -> float:
        if due not in self._seconds:
            is_due = [layer.name in due for layer in self._profile.layers]
            plan = _core.plan_due_layers(self._profile, self._link, is_due, slack=_core.training_slack)
            simulation = _core.simulate(plan, _core.with_due_layers(self._profile, is_due), self._link)
            self._seconds[due] = simulation.iteration_seconds
        return self._seconds[due]


def description(options: PolicyOptions | None) -> dict[str, Any]:
    """What must be equal on all ranks."""
    if options is None:
        return {"policies": None}
    return {"policies": policies_json(options.policies), "sketch_size": options.sketch_size}
