"""Hooks on the modules that read layers: they tell the engine of first and last reads. Design section 3."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from dreamddp._core import LastReadKind, Profile
from dreamddp._runtime import Engine
from dreamddp.layers import layer_name
from dreamddp.module_hooks import ModuleHook
from dreamddp.reads import ReadOrder


class ReadHooks:
    """Owns the forward hooks of a model for one profile: installed when made, gone after `remove()`."""

    def __init__(self, model: nn.Module, engine: Engine, profile: Profile, order: ReadOrder) -> None:
        self._engine = engine
        self._handles: list[RemovableHandle] = []
        self._tied_readers: list[TiedReader] = []
        self._wait = _read_by_others(engine.forward_pre_hook(list(range(len(profile.layers)))), engine)
        self._wait_for = {
            layer.name: _read_by_others(engine.forward_pre_hook([index]), engine)
            for index, layer in enumerate(profile.layers)
        }
        modules = {layer_name(name): module for name, module in model.named_modules()}
        root = layer_name("")
        first_readers: dict[str, set[int]] = defaultdict(set)
        last_readers: dict[str, set[int]] = defaultdict(set)
        for index, layer in enumerate(profile.layers):
            reads = order.layers.get(layer.name)
            if reads is None:
                continue
            # A layer that nobody was seen to read may be read anywhere: the model's forward waits for it.
            for reader in reads.readers or (root,):
                first_readers[reader].add(index)
            first_readers[layer.name].add(index)
            if layer.last_read.kind == LastReadKind.forward:
                last_readers[reads.last_reader].add(index)
        tied = {
            layer.last_read.layer
            for layer in profile.layers
            if layer.last_read.kind == LastReadKind.other_backward
        }
        for index in tied:
            name = profile.layers[index].name
            if name not in order.layers:
                first_readers[name].add(index)
            tied_reader = TiedReader(engine, index)
            self._tied_readers.append(tied_reader)
            before = ModuleHook(tied_reader)
            self._handles.append(modules[name].register_forward_pre_hook(before, with_kwargs=True))
        for name, layers in first_readers.items():
            hook = engine.forward_pre_hook(sorted(layers))
            self._handles.append(modules[name].register_forward_pre_hook(ModuleHook(hook)))
            by_others = ModuleHook(_read_by_others(hook, engine))
            self._handles.append(modules[name].register_state_dict_pre_hook(by_others))
        for name, layers in last_readers.items():
            after = ModuleHook(engine.forward_hook(sorted(layers)))
            self._handles.append(modules[name].register_forward_hook(after))

    def wait(self, model: nn.Module) -> None:
        """Returns when all layers may be read."""
        self._wait(model, "", False)

    def wait_for(self, model: nn.Module, layer: str) -> None:
        """Returns when the layer may be read."""
        self._wait_for[layer](model, "", False)

    def backward_ended(self) -> None:
        """The final backward of an iteration is over, or its forward was given up: no gradient follows."""
        for reader in self._tied_readers:
            reader.reset()

    def remove(self) -> None:
        self.backward_ended()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _read_by_others(hook: Callable[..., None], engine: Engine) -> Callable[..., None]:
    """The hook for reads that are no part of the training: state_dict() waits for the layers, too.

    After a failure it lets them pass: a checkpoint can still be written.
    """

    def wait(module: nn.Module, prefix: str, keep_vars: bool) -> None:
        if engine.has_failed:
            return
        with torch.no_grad():
            hook(module)

    return wait


class TiedReader:
    """Forward pre-hook of a module that reads a tied layer: its backward has ended when the gradients of its
    inputs are there, for every call of the module."""

    def __init__(self, engine: Engine, layer: int) -> None:
        self._engine = engine
        self._layer = layer
        self._expected = 0
        self._handles: list[RemovableHandle] = []

    def reset(self) -> None:
        """No backward of an earlier forward is expected any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._expected = 0

    # A hook that is removed while its module's hooks run still comes once, without keyword arguments.
    def __call__(self, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        if not torch.is_grad_enabled():
            return
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                self._expected += 1
                self._handles.append(leaf.register_hook(self._gradient_came))

    def _gradient_came(self, gradient: torch.Tensor) -> None:
        self._expected -= 1
        if self._expected == 0:
            self._engine.reader_backward_ends(self._layer)
