"""Policies in a running training: handed to the engine, saved, predicted and shown. Design section 10."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dreamddp import _core
from dreamddp._core import Link, Profile
from dreamddp._runtime import Engine
from dreamddp.due_layers import DueLayers
from dreamddp.policies import Policies, policies_json

if TYPE_CHECKING:
    from dreamddp._runtime import PolicyState


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


def decisions(engine: Engine, layers: Sequence[str], first_iteration: int = 0) -> list[IterationDecisions]:
    """About `first_iteration` and later ones, of the latest 4096 at most, the oldest first."""

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
        for iteration, rows in engine.decisions(first_iteration)
    ]


def due_layers(decided: Sequence[IterationDecisions]) -> list[DueLayers]:
    """Of each iteration, the names of the layers that were averaged."""
    return [frozenset(layer.layer for layer in each.layers if layer.is_due) for each in decided]


def description(options: PolicyOptions | None) -> dict[str, Any]:
    """What must be equal on all ranks."""
    if options is None:
        return {"policies": None}
    return {"policies": policies_json(options.policies), "sketch_size": options.sketch_size}
