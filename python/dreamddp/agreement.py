"""Agree, then act: what decides about communication is compared over all ranks first. Design section 9.2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from dreamddp.group import explained

T = TypeVar("T")

_LONGEST_VALUE = 120  # characters of a message


def gather(value: T, group: dist.ProcessGroup, doing: str) -> list[T]:
    """One value from each rank of the group, in rank order. Collective.

    Raises:
        SyncError: where a peer is missing or dies meanwhile.
    """
    values: list[Any] = [None] * dist.get_world_size(group)
    with explained(doing):
        dist.all_gather_object(values, value, group=group)
    return values


def on_all_ranks(compute: Callable[[], T], group: dist.ProcessGroup, doing: str) -> list[T]:
    """The result of `compute` on each rank. Collective.

    Raises:
        ValueError: on every rank, where `compute` raised one on any; its text names the rank.
    """
    result: T | None = None
    error: Exception | None = None
    try:
        result = compute()
    except Exception as raised:  # passed on below, so that no rank is left waiting
        error = raised
    outcomes = gather((result, None if error is None else f"{type(error).__name__}: {error}"), group, doing)
    if error is not None:
        raise error
    for rank, (_, message) in enumerate(outcomes):
        if message is not None:
            raise ValueError(f"rank {rank} failed while {doing}: {message}")
    return [value for value, _ in outcomes]  # type: ignore[misc]


def require_equal(
    descriptions: list[dict[str, Any]],
    what: str,
    remedy: str = "Build the same model, with the same arguments, on every rank.",
) -> None:
    """Compares what each rank says of itself.

    Raises:
        ValueError: naming the first entry that differs, and both ranks' values; long ones from a little
            before the place where they differ.
    """
    for rank, description in enumerate(descriptions):
        for key in {**descriptions[0], **description}:
            ours, theirs = descriptions[0].get(key, "nothing"), description.get(key, "nothing")
            if ours != theirs:
                ours, theirs = _excerpts(str(ours), str(theirs))
                raise ValueError(
                    f"ranks disagree on {what}: {key} is {ours} on rank 0 and {theirs} on rank {rank}. "
                    f"{remedy}"
                )


def _excerpts(one: str, other: str) -> tuple[str, str]:
    if max(len(one), len(other)) <= _LONGEST_VALUE:
        return one, other
    pairs = enumerate(zip(one, other, strict=False))
    place = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))
    begin = max(0, place - _LONGEST_VALUE // 2)

    def excerpt(text: str) -> str:
        end = begin + _LONGEST_VALUE
        return f"{'..' if begin else ''}{text[begin:end]}{'..' if end < len(text) else ''}"

    return excerpt(one), excerpt(other)


def require_same_call(calls: list[str]) -> None:
    """Raises ValueError where the calls that ranks have made are not the same."""
    for rank, call in enumerate(calls):
        if call != calls[0]:
            raise ValueError(
                f"ranks disagree: rank 0 calls {calls[0]}, rank {rank} calls {call}. Make the same calls, in "
                "the same order, on every rank."
            )
