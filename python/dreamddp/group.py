"""DreamDDP's process group: made from the ranks that train together, with errors that say what to do."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from dreamddp._core import SyncError

DEFAULT_TIMEOUT_SECONDS = 300.0


def seconds_of(timeout: float | timedelta) -> float:
    """The timeout in seconds; it may be out of range."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def make_group(process_group: dist.ProcessGroup | None, timeout_seconds: float) -> dist.ProcessGroup:
    """A new group of the same ranks. Collective.

    Raises:
        SyncError: where a peer is missing.
    """
    ranks = dist.get_process_group_ranks(process_group or dist.group.WORLD)
    with explained("creating DreamDDP's process group"):
        group = dist.new_group(
            ranks,
            timeout=timedelta(seconds=timeout_seconds),
            use_local_synchronization=process_group is not None,
        )
    assert isinstance(group, dist.ProcessGroup)
    return group


def communication_device(group: dist.ProcessGroup, device: torch.device) -> torch.device:
    """Where tensors of `device` are communicated: there, if the group has a backend for it, else where it has
    one. The emulated link takes host memory only, a group of NCCL alone takes none."""
    types = [supported.type for supported in group._device_types]
    if device.type in types:
        return device
    return torch.device("cpu" if "cpu" in types else types[0])


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turns an error of torch.distributed into a SyncError that says what was being done, and what to check.

    Raises:
        SyncError: where the body raises a RuntimeError, such as those for dead and late peers.
    """
    began = time.monotonic()
    try:
        yield
    except SyncError:
        raise
    except RuntimeError as error:
        text = _reason(error)
        rank = dist.get_rank() if dist.is_initialized() else os.environ.get("RANK", "?")
        raise SyncError(
            f"rank {rank}: {doing} failed after {time.monotonic() - began:.3g} s, as a peer is "
            f"missing or cannot be reached: {text}{hint(text)}"
        ) from error


def _reason(error: RuntimeError) -> str:
    """What torch.distributed says, without the place in its source and its advice."""
    line = (str(error).splitlines() or [""])[0]
    return re.sub(r"^(\[[^\]]*\]\s*)+", "", line).partition(". This ")[0]


def hint(text: str) -> str:
    """What to check after this error of torch.distributed: the variable at fault; empty where none is known.

    It begins with a space.
    """
    lower = text.lower()
    address = os.environ.get("MASTER_ADDR")
    port = os.environ.get("MASTER_PORT")
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    if any(sign in lower for sign in ("unable to find address", "ifa", "interface", "no such device")):
        return (
            f" Check GLOO_SOCKET_IFNAME, now {interface!r}: it must name a network interface of this machine "
            "that the other ranks can reach; `ip -brief address` lists them. Unset it to have one chosen."
        )
    if any(sign in lower for sign in ("eaddrinuse", "address already in use")):
        return (
            f" Check MASTER_PORT, now {port!r}: another process of this machine uses that port. Take a free "
            "one, the same on all ranks."
        )
    if any(
        sign in lower
        for sign in ("name or service", "getaddrinfo", "gai error", "resolve", "no address associated")
    ):
        return (
            f" Check MASTER_ADDR, now {address!r}: it must be a host name or an address of rank 0's machine "
            "that this machine can look up."
        )
    if any(sign in lower for sign in ("connection refused", "econnrefused", "client socket", "etimedout")):
        return (
            f" Check MASTER_ADDR, now {address!r}, and MASTER_PORT, now {port!r}: they must be those of rank "
            "0, whose process must run, and no firewall may be in between."
        )
    return ""
