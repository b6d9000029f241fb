"""States that are not what state_dict() gave are refused by the name of the field."""

from __future__ import annotations

from typing import Any

import pytest

from dreamddp.checkpoint import SavedTraining

GOOD: dict[str, Any] = {
    "version": 1,
    "rank": 0,
    "ranks": 2,
    "layers": "{}",
    "iteration": 3,
    "plan": None,
    "reads": None,
    "profile": None,
    "link": None,
    "is_measuring": False,
    "pending": "",
    "policies": "",
}


def test_a_good_state_is_read() -> None:
    assert SavedTraining.from_state(GOOD).to_state() == GOOD


@pytest.mark.parametrize("state", [None, [1], "text"])
def test_what_is_no_dict_is_refused(state: Any) -> None:
    with pytest.raises(ValueError, match=r"state: got .*; expected the dict that"):
        SavedTraining.from_state(state)


@pytest.mark.parametrize(
    "key", [key for key in GOOD if key not in ("version", "plan", "reads", "profile", "link")]
)
def test_keys_that_are_missing_are_named(key: str) -> None:
    with pytest.raises(ValueError, match=rf"state\['{key}'\]: got None; expected .* Is the file complete"):
        SavedTraining.from_state({name: value for name, value in GOOD.items() if name != key})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("iteration", "abc"),
        ("iteration", 2.5),
        ("iteration", -5),
        ("iteration", 1 << 70),
        ("iteration", True),
        ("rank", "0"),
        ("is_measuring", "no"),
        ("layers", "{"),
        ("plan", {}),
        ("plan", "{"),
        ("reads", "{}"),
        ("link", "[]"),
        ("profile", "x"),
        ("pending", "!!!"),
        ("pending", "YWJj"),
    ],
)
def test_values_that_cannot_be_read_are_named(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"state\['{key}'\]: got .*; expected .* Is the file complete"):
        SavedTraining.from_state(GOOD | {key: value})


def test_a_version_of_another_type_shows_it() -> None:
    with pytest.raises(ValueError, match="version of the state: got '1'; expected 1"):
        SavedTraining.from_state(GOOD | {"version": "1"})
