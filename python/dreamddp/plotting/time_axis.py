"""Time axes with a unit that suits what they show."""

import math
from typing import NamedTuple


class TimeUnit(NamedTuple):
    name: str
    per_second: float


def unit_for(longest_seconds: float) -> TimeUnit:
    if longest_seconds >= 2:
        return TimeUnit("s", 1)
    if longest_seconds >= 2e-3:
        return TimeUnit("ms", 1e3)
    return TimeUnit("us", 1e6)


def round_ticks(least: float, greatest: float) -> list[float]:
    """1, 2, 5, 10, .. from below `least` to above `greatest`, for logarithmic axes."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(greatest))
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    below = [tick for tick in ticks if tick <= least][-1]
    above = next(tick for tick in ticks if tick >= greatest)
    return [tick for tick in ticks if below <= tick <= above]
