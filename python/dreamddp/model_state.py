"""Parameters and buffers of all kinds, made equal on all ranks. Design sections 9.7 and 9.8."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from dreamddp._runtime import Engine
from dreamddp.group import communication_device, explained
from dreamddp.layers import AVERAGED


def broadcast(tensors: Iterable[torch.Tensor], group: dist.ProcessGroup) -> None:
    """From the group's first rank; any dtype, any strides. Collective."""
    source = dist.get_process_group_ranks(group)[0]
    with torch.no_grad():
        for tensor in map(_distinct_elements, tensors):
            if tensor.numel() > 0:
                dense = tensor.to(communication_device(group, tensor.device)).contiguous()
                # As bytes: backends know some dtypes only.
                with explained("sending rank 0's model to all ranks"):
                    dist.broadcast(dense.reshape(-1).view(torch.uint8), source, group=group)
                if dense.device != tensor.device or dense.data_ptr() != tensor.data_ptr():
                    tensor.copy_(dense)


def average(
    parameters: Iterable[torch.Tensor],
    buffers: Iterable[torch.Tensor],
    engine: Engine,
    group: dist.ProcessGroup,
) -> None:
    """Numbers become their mean over the ranks; buffers of integers (counters) the largest. Collective."""
    distinct = [view for view in map(_distinct_elements, buffers) if view.numel() > 0]
    numbers = [view for view in distinct if view.is_floating_point() or view.is_complex()]
    counters = [view for view in distinct if not (view.is_floating_point() or view.is_complex())]
    with torch.no_grad():
        # Numbers of 8 bits have a mean in a wider type only.
        wide = [view if view.dtype in AVERAGED else view.float() for view in numbers]
        engine.average([*parameters, *wide])
        for view, mean in zip(numbers, wide, strict=True):
            if mean is not view:
                view.copy_(mean)
        for view in counters:
            # Backends know some types of integers only.
            largest = view.to(communication_device(group, view.device), torch.long)
            with explained("taking the largest of each counter over the ranks"):
                dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
            if largest is not view:
                view.copy_(largest)


def _distinct_elements(tensor: torch.Tensor) -> torch.Tensor:
    """A view without the repetitions of an expanded tensor, which cannot be written as a whole."""
    view = tensor.detach()
    for dim in reversed(range(tensor.dim())):
        if tensor.stride(dim) == 0 and tensor.size(dim) > 0:
            view = view.select(dim, 0)
    return view
