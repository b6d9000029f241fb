"""Reads by code that no hook sees: inside `waiting_reads()`, torch functions wait for what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from dreamddp.layers import ModelLayer

# They take a parameter without reading its values, and training loops call them while averages are in flight.
# Getters never read either: what is read through a view shares its storage.
_READ_NOTHING = frozenset(
    [
        torch.Tensor.dim,
        torch.Tensor.element_size,
        torch.Tensor.get_device,
        torch.Tensor.is_complex,
        torch.Tensor.is_contiguous,
        torch.Tensor.is_floating_point,
        torch.Tensor.nelement,
        torch.Tensor.numel,
        torch.Tensor.register_hook,
        torch.Tensor.register_post_accumulate_grad_hook,
        torch.Tensor.requires_grad_,
        torch.Tensor.size,
        torch.Tensor.storage_offset,
        torch.Tensor.stride,
        torch.Tensor.untyped_storage,
        torch.Tensor.grad.__set__,  # type: ignore[union-attr]
    ]
)


class WaitingReads(TorchFunctionMode):
    """While entered, torch functions that this thread calls on parameters, running statistics or views of
    them first wait for their layer.

    Args:
        layers: gives the layers of the model as it is now.
        wait: returns when the layer named may be read.
    """

    def __init__(self, layers: Callable[[], Sequence[ModelLayer]], wait: Callable[[str], None]) -> None:
        super().__init__()
        self._layers_now = layers
        self._wait = wait
        self._layers: Sequence[ModelLayer] | None = None
        self._by_id: dict[int, str] = {}
        self._by_storage: dict[int, str] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") != "__get__" and func not in _READ_NOTHING:
            self._follow_model()
            names = {self._layer_of(leaf) for leaf in tree_leaves((args, kwargs))}
            for name in sorted(name for name in names if name is not None):
                self._wait(name)
        return func(*args, **(kwargs or {}))

    def _follow_model(self) -> None:
        """The layers are others where DreamDDP has attached again."""
        layers = self._layers_now()
        if layers is self._layers:
            return
        self._layers = layers
        tensors = [
            (tensor, layer.name) for layer in layers for tensor in (*layer.parameters, *layer.statistics)
        ]
        self._by_id = {id(tensor): name for tensor, name in tensors}
        self._by_storage = {address: name for tensor, name in tensors if (address := _address(tensor))}

    def _layer_of(self, leaf: object) -> str | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        address = _address(leaf)
        name = self._by_id.get(id(leaf))
        if name is None:
            return self._by_storage.get(address)
        if address:
            self._by_storage[address] = name  # `parameter.data = ..` gives it another one
        return name


def _address(tensor: torch.Tensor) -> int:
    """Of the storage; 0 where there is none, as for empty tensors and those that stand for others."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0
