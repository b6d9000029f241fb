"""Reads found, not guessed: one watched iteration shows who reads which parameter when. Design section 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from dreamddp._runtime import Engine
from dreamddp.layers import ModelLayer, layer_name
from dreamddp.module_hooks import ModuleHook

NEVER = -1


@dataclass
class LayerReads:
    """What one rank saw of a layer in the watched iteration. Times count operators and events."""

    name: str
    first_read: int = NEVER
    """In the forward."""
    readers: list[str] = field(default_factory=list)
    """Modules in whose forward the layer is read, in order of their first read."""
    last_reader: str = ""
    """The module that reads it last in the forward."""
    last_backward_read: int = NEVER
    backward_end: int = NEVER
    """When the last gradient of its parameters was complete."""
    is_repeated: bool = False
    """Whether the gradient of a parameter came more than once in the backward."""

    @property
    def is_read_behind_gradient(self) -> bool:
        """Whether an operator reads it when its gradients are complete: through a detached tensor, say."""
        return NEVER != self.backward_end < self.last_backward_read


@dataclass
class Reader:
    """A module that reads a tied layer of another module: its backward is over when its inputs have
    gradients."""

    name: str
    first_call: int
    backward_end: int


@dataclass(frozen=True)
class AgreedReads:
    """When a layer is read, on all ranks."""

    name: str
    last_read: Literal["backward", "forward"] | tuple[Literal["backward"], str]
    """Its own backward, the forward, or the backward of the module named."""
    readers: tuple[str, ...]
    """Modules whose forward must wait for the layer; empty where no rank read it."""
    last_reader: str
    is_repeated: bool
    """Whether gradients come more than once in a backward, as from several checkpointed parts, or the layer
    is read once more behind them: only the end of the backward then shows that it is over."""


class ReadWatch(TorchDispatchMode):
    """Watches every operator of one forward and backward.

    Start it in a forward pre-hook of the model, stop it on the same thread after the backward and before the
    optimizer step. Not thread-safe.
    """

    def __init__(self, model: nn.Module, layers: Sequence[ModelLayer], engine: Engine) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._engine = engine
        self.layers = {layer.name: LayerReads(layer.name) for layer in layers}
        self.reader_ends: dict[str, int] = {}
        self.first_calls: dict[str, int] = {}
        self._time = 0
        self._in_backward = False
        # Hooks added while the model's own pre-hooks run take effect only in its next forward.
        self._stack: list[str] = [layer_name("")]
        self._names = {module: layer_name(name) for name, module in model.named_modules()}
        self._owner = {
            parameter.untyped_storage().data_ptr(): layer.name
            for layer in layers
            for parameter in layer.parameters
        }
        self._handles: list[RemovableHandle] = []
        enter, leave = ModuleHook(self._enter), ModuleHook(self._leave)
        for module in self._names:
            self._handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            self._handles.append(module.register_forward_hook(leave, always_call=True))
        for layer in layers:
            for parameter in layer.parameters:
                self._handles.append(
                    parameter.register_post_accumulate_grad_hook(self._on_gradient(self.layers[layer.name]))
                )
        self._is_watching = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Watches no more operators; hooks stay, as they may be running."""
        if self._is_watching:
            self._is_watching = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        self.leave()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _tick(self) -> int:
        self._time += 1
        return self._time

    # A hook that is removed while its module's hooks run still comes once, without keyword arguments.
    def _enter(self, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        self._engine.module_begins()
        name = self._names[module]
        self._stack.append(name)
        self.first_calls.setdefault(name, self._tick())
        if not self._in_backward:
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    self._handles.append(leaf.register_hook(self._on_input_gradient(name)))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()

    def _on_input_gradient(self, name: str) -> Any:
        def hook(_: torch.Tensor) -> None:
            self.reader_ends[name] = self._tick()

        return hook

    def _on_gradient(self, reads: LayerReads) -> Any:
        came = False

        def hook(_: torch.Tensor) -> None:
            nonlocal came
            reads.is_repeated |= came
            came = True
            self._in_backward = True
            reads.backward_end = self._tick()

        return hook

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        _count_versions(func, args)
        # The current autograd node is set only while a backward runs.
        self._in_backward = torch._C._current_autograd_node() is not None
        if not _makes_view(func):
            time = self._tick()
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                    owner = self._owner.get(leaf.untyped_storage().data_ptr())
                    if owner is not None:
                        self._note(self.layers[owner], time)
        return result

    def _note(self, reads: LayerReads, time: int) -> None:
        if self._in_backward:
            reads.last_backward_read = time
            return
        if not self._stack:
            return  # the user's own code, outside the model
        module = self._stack[-1]
        if reads.first_read == NEVER:
            reads.first_read = time
        if module not in reads.readers:
            reads.readers.append(module)
        reads.last_reader = module


def _count_versions(func: Any, args: tuple[Any, ...]) -> None:
    """For operators that write to lists of tensors, whose versions PyTorch does not count under a mode."""
    for argument, value in zip(func._schema.arguments, args, strict=False):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and isinstance(value, list | tuple):
            for tensor in value:
                torch.autograd.graph.increment_version(tensor)


def _makes_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write


def last_read(
    reads: LayerReads, watch: ReadWatch
) -> Literal["backward", "forward"] | tuple[Literal["backward"], str]:
    """The earliest event that is known to come after the last read of a layer."""
    if reads.last_backward_read == NEVER and reads.first_read != NEVER and reads.backward_end != NEVER:
        return "forward"
    # A tied layer: its gradient is complete only when all its uses have had their backward; the backward of
    # the module that reads it last comes earlier.
    earlier = [
        (watch.reader_ends[reader], reader)
        for reader in reads.readers
        if reader != reads.name
        and reads.last_backward_read < watch.reader_ends.get(reader, NEVER) < reads.backward_end
    ]
    return ("backward", min(earlier)[1]) if earlier else "backward"


@dataclass
class ObservedReads:
    """One rank's summary, small enough to send around."""

    layers: list[tuple[LayerReads, Literal["backward", "forward"] | tuple[Literal["backward"], str]]]
    readers: dict[str, Reader]


def summarise(watch: ReadWatch) -> ObservedReads:
    layers = [(reads, last_read(reads, watch)) for reads in watch.layers.values()]
    tied_readers = {kind[1] for _, kind in layers if isinstance(kind, tuple)}
    readers = {
        name: Reader(name, watch.first_calls[name], watch.reader_ends[name]) for name in sorted(tied_readers)
    }
    return ObservedReads(layers, readers)


@dataclass(frozen=True)
class ReadOrder:
    """The agreed layers in order of first read, and in the order of their backwards.

    Both hold the names of layers and of the readers of tied layers that are not layers themselves.
    """

    layers: dict[str, AgreedReads]
    forward: tuple[str, ...]
    backward: tuple[str, ...]


def agree_on_reads(observed: Sequence[ObservedReads]) -> ReadOrder:
    """Merges what the ranks saw: the most cautious last read, all readers, and the order of rank 0.

    A layer that rank 0 did not read stands behind the one in front of it among the model's modules; the
    backward is then taken to run in reverse.
    """
    agreed: dict[str, AgreedReads] = {}
    for index, (reads, _) in enumerate(observed[0].layers):
        seen = [o.layers[index] for o in observed if o.layers[index][0].first_read != NEVER]
        kinds = {kind for _, kind in seen}
        last_readers = {layer.last_reader for layer, _ in seen}
        last = kinds.pop() if len(kinds) == 1 else "backward"
        if last == "forward" and len(last_readers) != 1:
            last = "backward"
        readers = tuple(dict.fromkeys(reader for layer, _ in seen for reader in layer.readers))
        agreed[reads.name] = AgreedReads(
            reads.name,
            last,
            readers,
            min(last_readers, default=""),
            any(layer.is_repeated or layer.is_read_behind_gradient for layer, _ in seen),
        )

    forward: dict[str, tuple[int, int]] = {}
    backward: dict[str, int] = {}
    previous = NEVER
    for index, (reads, _) in enumerate(observed[0].layers):
        previous = previous if reads.first_read == NEVER else reads.first_read
        forward[reads.name] = (previous, index)
        backward[reads.name] = reads.backward_end
    for name in sorted(
        {reads.last_read[1] for reads in agreed.values() if isinstance(reads.last_read, tuple)}
    ):
        reader = next(o.readers[name] for o in observed if name in o.readers)
        if name not in forward:
            forward[name] = (reader.first_call, NEVER)
        backward[name] = reader.backward_end
    forward_order = tuple(sorted(forward, key=lambda name: forward[name]))
    if NEVER in backward.values():
        return ReadOrder(agreed, forward_order, forward_order[::-1])
    return ReadOrder(agreed, forward_order, tuple(sorted(backward, key=lambda name: backward[name])))
