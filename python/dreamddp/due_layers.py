"""Simulated times of iterations in which policies have some of the layers averaged. Does not import torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from dreamddp import _core
from dreamddp._core import LayerPolicies, Link, Plan, Profile
from dreamddp.simulation_row import Row, simulation_row

PLANNER = "policy"
"""What a plan of policies says of its planner; it has no ops, as each iteration has its own."""

_MEANS = (
    "iteration_seconds",
    "compute_seconds",
    "link_seconds",
    "exposed_seconds",
    "limit_seconds",
    "bound_seconds",
    "gap",
    "ops_per_iteration",
    "bytes_per_iteration",
)

DueLayers = frozenset[str]
"""Names of the layers that are averaged in an iteration."""


def plan_of_policies(profile: Profile) -> Plan:
    """The plan without ops that stands for what policies decide."""
    return Plan(planner=PLANNER, period=1, layers=[layer.name for layer in profile.layers], ops=[])


class DueLayerTimes:
    """Times of iterations over a link, by which layers are due; each set is planned and simulated once."""

    def __init__(self, profile: Profile, link: Link) -> None:
        self._profile = profile
        self._link = link
        self._rows: dict[DueLayers, Row] = {}
        self._counts: Counter[DueLayers] = Counter()

    def add(self, due: Iterable[DueLayers]) -> None:
        """Counts these iterations, too."""
        self._counts.update(due)

    def mean(self) -> Row | None:
        """The mean over all iterations added, with the keys of `simulation_row()`; `staging_bytes` is the
        largest, `period` 1. None without iterations."""
        if not self._counts:
            return None
        rows = [(self._row(names), count) for names, count in self._counts.items()]
        mean = {key: _mean([(row[key], count) for row, count in rows]) for key in _MEANS}
        staging_bytes = [row["staging_bytes"] for row, _ in rows]
        largest = None if None in staging_bytes else max(staging_bytes)
        return {"planner": PLANNER, "period": 1, **mean, "staging_bytes": largest}

    def _row(self, due: DueLayers) -> Row:
        if due not in self._rows:
            is_due = [layer.name in due for layer in self._profile.layers]
            plan = _core.plan_due_layers(self._profile, self._link, is_due, slack=_core.training_slack)
            profile = _core.with_due_layers(self._profile, is_due)
            self._rows[due] = simulation_row(plan, _core.simulate(plan, profile, self._link))
        return self._rows[due]


def due_without_gradients(profile: Profile, policies: str, iterations: int) -> list[DueLayers]:
    """The layers that policies (JSON) have averaged in each of the first iterations, as far as that can be
    said without gradients: layers are due by period and staleness, never by direction.

    Raises:
        ValueError: for policies that do not fit the layers.
    """
    names = [layer.name for layer in profile.layers if layer.num_bytes != 0]
    rules = LayerPolicies(names, policies)
    due = []
    for _ in range(iterations):
        due.append(
            frozenset(name for name, decision in zip(names, rules.decisions, strict=True) if decision.is_due)
        )
        rules.iteration_ends([math.nan] * len(names))
    return due


def longest_gap(due: Iterable[DueLayers], layers: Iterable[str]) -> int:
    """The most iterations from one average of a layer to its next, or to the end; at least 1."""
    last_average = dict.fromkeys(layers, -1)
    longest, number = 1, -1
    for number, names in enumerate(due):
        for name in names:
            longest = max(longest, number - last_average[name])
            last_average[name] = number
    return max([longest, *(number - average for average in last_average.values())])


def _mean(values: list[tuple[Any, int]]) -> float | None:
    if any(value is None for value, _ in values):
        return None
    return float(sum(value * count for value, count in values) / sum(count for _, count in values))
