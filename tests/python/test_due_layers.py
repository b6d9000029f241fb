"""Times of iterations in which policies have some layers averaged."""

from __future__ import annotations

import pytest

from dreamddp import Layer, Link, Profile, simulate
from dreamddp._core import plan_due_layers, training_slack, with_due_layers
from dreamddp.due_layers import DueLayerTimes, due_without_gradients, longest_gap
from dreamddp.policies import BoundedStaleness, Combined, Direction, FixedPeriod, policies_json
from dreamddp.simulation_row import simulation_row

LINK = Link(bandwidth_bytes_per_second=1000.0, latency_seconds=0.5, workers=2, in_flight=1)


def profile() -> Profile:
    return Profile(
        [
            Layer(name, forward_seconds=1.0, backward_seconds=2.0, num_bytes=num_bytes)
            for name, num_bytes in (("(loop)", 0), ("wte", 4000), ("h", 2000), ("head", 1000))
        ]
    )


def test_counters_alone_say_which_layers_are_due() -> None:
    rules = policies_json(
        {
            "wte": FixedPeriod(3),
            "h": Combined(most_staleness=2, under=Direction(threshold=1.0)),
            "head": BoundedStaleness(1),
        }
    )
    due = due_without_gradients(profile(), rules, 6)
    # Two local steps come before iteration 2, and the steps of iterations 2 and 3 before iteration 4.
    assert [sorted(names) for names in due] == [
        [],
        ["head"],
        ["h", "head", "wte"],
        ["head"],
        ["h", "head"],
        ["head", "wte"],
    ]
    assert longest_gap(due, ["wte", "h", "head"]) == 3


def test_gaps_count_from_the_start_and_to_the_end() -> None:
    assert longest_gap([], ["a"]) == 1
    assert longest_gap([frozenset("a")], ["a"]) == 1
    assert longest_gap([frozenset()] * 4, ["a"]) == 4
    assert longest_gap([frozenset(), frozenset("a"), frozenset("b")], ["a", "b"]) == 3
    assert longest_gap([frozenset("a"), frozenset(), frozenset(), frozenset(), frozenset("a")], ["a"]) == 4


def test_rules_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pattern '\*\.head'"):
        due_without_gradients(profile(), policies_json({"*.head": FixedPeriod(1), "*": FixedPeriod(2)}), 2)


def test_the_mean_is_that_of_the_plans_of_each_iteration() -> None:
    due = [frozenset(), frozenset({"head"}), frozenset({"head"}), frozenset({"wte", "h", "head"})]
    times = DueLayerTimes(profile(), LINK)
    assert times.mean() is None
    times.add(due[:1])
    times.add(due[1:])
    mean = times.mean()
    assert mean is not None
    rows = []
    for names in due:
        is_due = [layer.name in names for layer in profile().layers]
        plan = plan_due_layers(profile(), LINK, is_due, slack=training_slack)
        rows.append(simulation_row(plan, simulate(plan, with_due_layers(profile(), is_due), LINK)))
    assert mean.keys() == rows[0].keys()
    for key in ("iteration_seconds", "exposed_seconds", "link_seconds", "ops_per_iteration", "gap"):
        assert mean[key] == pytest.approx(sum(row[key] for row in rows) / 4, rel=1e-12)
    assert mean["bytes_per_iteration"] == (0 + 1000 + 1000 + 7000) / 4
    assert mean["staging_bytes"] == max(row["staging_bytes"] for row in rows)
