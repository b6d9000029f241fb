"""An emulated slow link for all process groups of a machine: no root, no network settings.

    import torch.distributed as dist
    from dreamddp.emulated_link import emulated_link

    backend = emulated_link(bandwidth="100Mbit/s", latency="1ms")
    dist.init_process_group(backend, ..)

Everything that runs over such a group (DreamDDP, PyTorch's DistributedDataParallel, any other library) sees
collectives that take as long as over that link. They are carried out by Gloo, on the CPU, and then held back
until their time has come. All ranks must lie on one machine, whose clock they share, and call `emulated_link`
with the same values.

Op i of n bytes over K workers starts at max(ready_i, start_(i-1) + x_(i-1), finish_(i-m)) and finishes
x_i + latency (+ jitter) later, where ready_i is the time at which the last rank has launched it, m is
`in_flight`, and x_i is the time for which it takes the link:

| collective | x |
|---|---|
| all-reduce | 2(K-1)/K · n / bandwidth |
| all-gather, reduce-scatter, all-to-all, gather, scatter | (K-1)/K · n / bandwidth, n for all workers |
| broadcast, reduce | n / bandwidth |
| barrier | 0 |

Point-to-point messages are not slowed down. An op never takes less time than Gloo itself needs for it.
"""

from __future__ import annotations

import atexit
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from dreamddp import _core
from dreamddp._runtime import EmulatedLink, LinkBooking, LinkStatistics

__all__ = ["LinkBooking", "LinkStatistics", "emulated_link", "link_statistics", "recent_bookings"]

BACKEND = "emulated"

_current: EmulatedLink | None = None


def emulated_link(
    bandwidth: str | float = "100Mbit/s",
    latency: str | float = "1ms",
    in_flight: int = 1,
    jitter: str | float = "0s",
    seed: int = 0,
) -> str:
    """Makes the link of this process and registers its backend with PyTorch.

    Process groups that are created from now on, with the returned backend, share the link; groups that exist
    keep theirs.

    Args:
        bandwidth: such as "100Mbit/s" or "10MB/s"; a number is bytes per second.
        latency: added to every collective, such as "0.2ms"; a number is seconds.
        in_flight: collectives that may be on the link at once; more than one hides latency.
        jitter: up to this much is added to each collective's latency, drawn from `seed`.
        seed: of the jitter; the same on all ranks.

    Returns:
        The name of the backend, for `init_process_group` and `new_group`.

    Raises:
        ValueError: a value is out of range; the message names it.
    """
    global _current
    _current = EmulatedLink(
        bandwidth_bytes_per_second=_rate(bandwidth),
        latency_seconds=_seconds(latency, "latency"),
        in_flight=in_flight,
        jitter_seconds=_seconds(jitter, "jitter"),
        seed=seed,
    )
    # Its collectives call Python callbacks when they end: none may end while the interpreter does.
    atexit.register(_current.close)
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create_backend, extended_api=True, devices=["cpu"])
    return BACKEND


def link_statistics() -> LinkStatistics:
    """What the link that was made last has carried in this process so far."""
    return _require_link().statistics()


def recent_bookings() -> list[LinkBooking]:
    """The latest 4096 collectives over the link that was made last, with start and finish, oldest first."""
    return _require_link().recent()


def _require_link() -> EmulatedLink:
    if _current is None:
        raise RuntimeError("this process has no emulated link: call emulated_link() first")
    return _current


def _create_backend(options: Any, _: object) -> dist.Backend:
    timeout: timedelta = options.timeout
    gloo = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout)
    return _require_link().backend(gloo, timeout, options.group_id)


def _seconds(value: str | float, field: str) -> float:
    return _core.parse_seconds(value, field) if isinstance(value, str) else float(value)


def _rate(value: str | float) -> float:
    return _core.parse_bytes_per_second(value, "bandwidth") if isinstance(value, str) else float(value)
