"""Frozen parameters and buffers of all kinds: compared, broadcast, and made equal by finish()."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dreamddp import DreamDDP
from tests.distributed.ranks import run_ranks

State = dict[str, torch.Tensor]
NUMBERS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn]
INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


class Buffers(nn.Module):
    """All that is not trained holds `value`."""

    def __init__(self, value: int) -> None:
        super().__init__()
        self.trained = nn.Linear(2, 2)
        self.frozen = nn.Parameter(
            torch.full((3,), float(value)).to(torch.float8_e4m3fn), requires_grad=False
        )
        self.counts = nn.Parameter(torch.full((3,), value, dtype=torch.int16), requires_grad=False)
        for dtype in NUMBERS + INTEGERS:
            self.register_buffer(str(dtype).replace(".", "_"), torch.full((2, 3), value).to(dtype))
        self.register_buffer("expanded", torch.full((4, 1), float(value)).expand(4, 1000))
        self.register_buffer("expanded_counts", torch.tensor(value, dtype=torch.int16).expand(5))
        self.register_buffer("transposed", torch.full((4, 3), float(value)).t())
        self.register_buffer("scalar", torch.tensor(value, dtype=torch.int16), persistent=False)
        self.register_buffer("empty", torch.empty(0, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.trained(x)
        return y


def values(model: nn.Module) -> State:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        # 8 bits cannot be sent from a rank.
        name: tensor.detach().float() if tensor.dtype == torch.float8_e4m3fn else tensor.detach().clone()
        for name, tensor in tensors.items()
        if not name.startswith("trained")
    }


def share_buffers(rank: int) -> tuple[State, State, list[tuple[int, ...]]]:
    """After attaching, and after finish() with values of each rank's own."""
    model = Buffers(1 + 2 * rank)
    sync = DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1), period=1, timeout=20.0)
    attached = values(model)
    own = Buffers(3 - 2 * rank)
    with torch.no_grad():
        for (name, buffer), (_, value) in zip(model.named_buffers(), own.named_buffers(), strict=True):
            part = slice(0, 1) if "expanded" in name else slice(None)
            if buffer.dim():
                buffer[..., part].copy_(value[..., part])
            else:
                buffer.copy_(value)
    sync.finish()
    return attached, values(model), [buffer.stride() for buffer in model.buffers()]


def test_buffers_of_all_kinds_are_shared() -> None:
    for attached, finished, strides in run_ranks(share_buffers, 2):
        first = Buffers(1)
        assert strides == [buffer.stride() for buffer in first.buffers()]
        for name, value in values(first).items():
            assert torch.equal(attached[name].double(), value.double()), name
            assert attached[name].dtype == value.dtype
            if name in ("frozen", "counts"):
                wanted = value.double()
            elif value.is_floating_point() or value.is_complex():
                wanted = torch.full(value.shape, 2.0).double()
            else:
                wanted = torch.full(value.shape, 3).to(value.dtype).double()
            assert torch.equal(finished[name].double(), wanted), name


def other_buffer(model: nn.Module) -> None:
    model.register_buffer("scalar", torch.zeros(2, dtype=torch.int16))


def other_dtype(model: nn.Module) -> None:
    model.register_buffer("scalar", torch.tensor(1))


def more_buffers(model: nn.Module) -> None:
    model.register_buffer("more", torch.zeros(1000))


def other_frozen(model: nn.Module) -> None:
    model.register_parameter("counts", nn.Parameter(torch.zeros(9, dtype=torch.int16), requires_grad=False))


def frozen_here(model: nn.Module) -> None:
    model.get_submodule("trained").requires_grad_(False)


DIFFERENCES = [
    (other_buffer, "buffer 'scalar'"),
    (other_dtype, "buffer 'scalar'"),
    (more_buffers, "buffer 'more'"),
    (other_frozen, "parameter 'counts' of layer '(root)'"),
    (frozen_here, "parameter 'trained.weight' of layer 'trained'"),
]


def attach_with_difference(rank: int, change: Callable[[nn.Module], None]) -> str:
    model = Buffers(1)
    if rank == 1:
        change(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="ranks disagree on model or arguments") as error:
        DreamDDP(model, optimizer, period=1, timeout=20.0)
    return str(error.value)


@pytest.mark.parametrize(("change", "name"), DIFFERENCES)
def test_ranks_with_other_buffers_or_frozen_parameters_raise(change: Callable[..., None], name: str) -> None:
    for text in run_ranks(attach_with_difference, 2, change):
        assert f"{name} is" in text
