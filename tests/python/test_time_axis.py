"""Units and ticks of time axes."""

import pytest

from dreamddp.plotting.time_axis import round_ticks, unit_for


@pytest.mark.parametrize(
    ("seconds", "unit"), [(350, "s"), (2, "s"), (1.9, "ms"), (2e-3, "ms"), (1.9e-3, "us"), (0, "us")]
)
def test_numbers_on_the_axis_are_of_a_readable_size(seconds: float, unit: str) -> None:
    assert unit_for(seconds).name == unit


def test_ticks_enclose_the_range() -> None:
    assert round_ticks(230, 1900) == [200, 500, 1000, 2000]
    assert round_ticks(2, 20) == [2, 5, 10, 20]
    assert round_ticks(0.7, 0.9) == pytest.approx([0.5, 1])
    assert round_ticks(1, 1) == [1]
