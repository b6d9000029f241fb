"""Policies in Python: values that the core decides by."""

from __future__ import annotations

import json
import math

import pytest

from dreamddp import Layer, Link, Profile, simulate
from dreamddp._core import LayerPolicies, Treatment, plan_due_layers, treatments, with_due_layers
from dreamddp.policies import (
    AdaptiveDirection,
    BoundedStaleness,
    Combined,
    Direction,
    FixedPeriod,
    Policy,
    policies_from_json,
    policies_json,
    take_turns,
)


def test_every_policy_reaches_the_core_as_it_is() -> None:
    rules = {
        "a": FixedPeriod(8),
        "b": BoundedStaleness(4),
        "c": Direction(threshold=-0.25, smoothing=0.125),
        "d": AdaptiveDirection(threshold=1, smoothing=0, history_smoothing=0.5),
        "*": Combined(most_staleness=9, under=AdaptiveDirection()),
    }
    text = policies_json(rules)
    assert json.loads(text) == {name: rule.to_json() for name, rule in rules.items()}
    assert list(json.loads(text)) == list(rules)
    assert policies_from_json(text) == rules
    assert list(policies_from_json(text)) == list(rules)
    assert policies_json(Combined(most_staleness=3)) == policies_json(
        {"*": Combined(most_staleness=3, under=Direction())}
    )


def test_layers_that_take_turns_share_the_iterations() -> None:
    assert take_turns({"a": 2, "b": 2, "c": 4}, {"a": 8, "b": 8, "c": 1}) == {
        "a": FixedPeriod(2, 1),
        "b": FixedPeriod(2, 0),
        "c": FixedPeriod(4, 3),
    }
    with pytest.raises(ValueError, match="period: got 0"):
        take_turns({"a": 0}, {"a": 1})


def test_decisions_say_why() -> None:
    policies = LayerPolicies(
        ["wte", "h"], policies_json({"wte": FixedPeriod(2), "*": Combined(most_staleness=3)})
    )
    assert policies.need_similarity == (False, True)
    assert [d.is_due for d in policies.decisions] == [False, False]
    policies.iteration_ends([math.nan, 0.5])
    wte, h = policies.decisions
    assert (policies.iteration, wte.is_due, wte.rule, wte.value, wte.limit) == (1, True, "fixed-period", 1, 2)
    assert (h.is_due, h.rule, h.value, h.limit) == (False, "direction", 0.75, 0.5)
    policies.iteration_ends([math.nan, -1], out_of_turn=[])
    assert repr(policies.decisions[1]) == "Decision(is_due=True, rule='direction', value=-0.125, limit=0.5)"
    assert [policies.staleness(layer) for layer in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({"h": FixedPeriod(0)}, r"fixed-period: period: got 0"),
        ({"h": Direction(threshold=2)}, r"direction: threshold: got 2"),
        ({"h": Direction(threshold=math.nan)}, r"'h': threshold: got NaN"),
        ({"h": Combined(most_staleness=-1)}, r"most_staleness: got -1"),
        ({"h": 3}, r"pattern 'h': got 3; expected a policy"),
        ({}, r"at least one pattern"),
    ],
)
def test_bad_policies_are_named(policies: dict[str, Policy], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policies_json(policies)


def test_the_plan_of_an_iteration_by_hand() -> None:
    layers = [
        Layer(name, forward_seconds=1, backward_seconds=2, num_bytes=1000, transfer_seconds=1)
        for name in "ab"
    ]
    profile = Profile(layers, step_seconds=1)
    plan = plan_due_layers(profile, Link(), [False, True])
    assert treatments(plan) == (Treatment.skipped, Treatment.alone)
    # b is read last at 4 s of 7 s, so the link is hidden.
    simulation = simulate(plan, with_due_layers(profile, [False, True]), Link())
    assert simulation.iteration_seconds == 7
    assert simulation.link_seconds == 1
