"""Workers of one machine, each in a network namespace of its own, joined by links of a given bandwidth.

Two workers have one veth pair between them; more of them have one each to a bridge, which has a namespace of
its own. `tc` shapes both ends of every pair. Needs root, `ip` and `tc` (Debian: iproute2); nothing outside of
these namespaces changes.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

PREFIX = "dreamddp-bench-"
INTERFACE = "slow0"
QUEUE_SECONDS = 0.05
"""How long a packet may wait to be sent; what would wait longer is dropped, and TCP slows down."""
CLONE_NEWNET = 0x40000000


class CannotSetUp(RuntimeError):
    """This machine lacks what namespaces and shaped links need."""


@dataclass(frozen=True)
class Endpoint:
    """Where one worker lives."""

    namespace: str
    address: str


@contextmanager
def shaped_links(
    workers: int, bandwidth_bytes_per_second: float, latency_seconds: float | None
) -> Iterator[list[Endpoint]]:
    """The workers' ends of the links, which exist inside; they are taken down also on Ctrl-C and SIGTERM.

    What a process that was killed has left behind is removed first. Each end sends with the given latency.

    Raises:
        CannotSetUp: without root, `ip`, `tc`, or a kernel that can do it.
    """
    check_can_set_up()
    remove_leftovers()
    before = signal.signal(signal.SIGTERM, _end_by_exception)
    prefix = f"{PREFIX}{os.getpid()}-"
    endpoints = [Endpoint(f"{prefix}{rank}", f"10.117.0.{rank + 1}") for rank in range(workers)]
    try:
        for endpoint in endpoints:
            _run("ip", "netns", "add", endpoint.namespace)
        if workers == 2:
            ends = [(endpoint.namespace, INTERFACE) for endpoint in endpoints]
            _join(ends[0], ends[1])
        else:
            ends = _join_by_bridge(f"{prefix}bridge", endpoints)
        for endpoint in endpoints:
            _run("ip", "-n", endpoint.namespace, "address", "add", f"{endpoint.address}/24", "dev", INTERFACE)
            _run("ip", "-n", endpoint.namespace, "link", "set", "lo", "up")
        for namespace, interface in ends:
            _shape(namespace, interface, bandwidth_bytes_per_second, latency_seconds)
            _run("ip", "-n", namespace, "link", "set", interface, "up")
        yield endpoints
    finally:
        _remove(prefix)
        signal.signal(signal.SIGTERM, before)


def check_can_set_up() -> None:
    """Raises CannotSetUp where root or a command is missing."""
    if os.geteuid() != 0:
        raise CannotSetUp("network namespaces need root: start this as root, or in a container that has it")
    for command in ("ip", "tc"):
        if shutil.which(command) is None:
            raise CannotSetUp(f"the command {command} is missing: apt-get install iproute2")


def remove_leftovers() -> None:
    """Removes the namespaces of processes that have ended without doing so."""
    for name in _namespaces():
        owner = re.match(rf"{PREFIX}(\d+)-", name)
        if owner and not Path("/proc", owner[1]).exists():
            _run("ip", "netns", "delete", name)


def enter(endpoint: Endpoint) -> None:
    """Moves the calling thread, and those that it starts from now on, into the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(Path("/run/netns", endpoint.namespace)) as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"entering the network namespace {endpoint.namespace}")


def sent_bytes() -> int:
    """What has left the link's end in the calling thread's namespace so far, by the interface's counter."""
    # As in /sys/class/net, but that shows the namespace in which /sys was mounted.
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    fields = next(line for line in lines if line.strip().startswith(f"{INTERFACE}:")).split()
    return int(fields[9])


def _join(one: tuple[str, str], other: tuple[str, str]) -> None:
    peer = ["peer", "name", other[1], "netns", other[0]]
    _run("ip", "-n", one[0], "link", "add", one[1], "type", "veth", *peer)


def _join_by_bridge(bridge: str, endpoints: list[Endpoint]) -> list[tuple[str, str]]:
    _run("ip", "netns", "add", bridge)
    _run("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", bridge, "link", "set", "bridge", "up")
    ends = []
    for rank, endpoint in enumerate(endpoints):
        one, other = (endpoint.namespace, INTERFACE), (bridge, f"worker{rank}")
        _join(one, other)
        _run("ip", "-n", bridge, "link", "set", other[1], "master", "bridge")
        ends += [one, other]
    return ends


def _shape(namespace: str, interface: str, bytes_per_second: float, latency_seconds: float | None) -> None:
    # At least one packet of the size that the system hands over at once, or what a late timer would miss.
    burst = max(64 << 10, int(bytes_per_second * 2e-3))
    rate = ["rate", f"{round(8 * bytes_per_second)}bit", "burst", str(burst)]
    place = ["qdisc", "add", "dev", interface]
    limit = ["latency", f"{round((QUEUE_SECONDS + (latency_seconds or 0)) * 1e6)}us"]
    _run("tc", "-n", namespace, *place, "root", "handle", "1:", "tbf", *rate, *limit)
    if latency_seconds is not None:
        delay = ["delay", f"{round(latency_seconds * 1e6)}us"]
        try:
            _run("tc", "-n", namespace, *place, "parent", "1:", "handle", "2:", "netem", *delay)
        except CannotSetUp as error:
            raise CannotSetUp(f"a latency needs netem in the kernel; leave it at none ({error})") from error


def _remove(prefix: str) -> None:
    for name in _namespaces():
        if name.startswith(prefix):
            _run("ip", "netns", "delete", name)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotSetUp(f"{' '.join(command)}: {' '.join(done.stderr.split())}")
    return done.stdout


def _end_by_exception(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
