"""Notices changes of a model to which DreamDDP is attached, and attaching twice. Design section 3."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from dreamddp._core import reject
from dreamddp._runtime import ContentsWatch, ParameterWatch
from dreamddp.layers import ModelLayer

_attached = WeakIdKeyDictionary()
"""Parameters that an attached DreamDDP trains, each with the watch that it is under."""


def check_unattached(model: nn.Module) -> None:
    """Raises ValueError where another DreamDDP trains a parameter of the model."""
    for name, parameter in model.named_parameters():
        watch = _attached.get(parameter)
        if watch is not None and watch() is not None:
            reject(
                f"parameter '{name}'",
                "one to which DreamDDP is attached already",
                "a model to which nothing is attached",
                "Call detach() of the DreamDDP before; attach once to a model, with all its optimizers.",
            )


class ModelWatch:
    """The modules and parameters of a model as they were when it was made."""

    def __init__(self, model: nn.Module, layers: Sequence[ModelLayer]) -> None:
        self._model = model
        self._layers = layers
        self._parameters = dict(model.named_parameters())
        self._states = {name: _state(parameter) for name, parameter in self._parameters.items()}
        self._watch = ParameterWatch(list(self._parameters.values()))
        modules = list(model.modules())
        self._contents = ContentsWatch(
            [module._parameters for module in modules]
            + [module._modules for module in modules]
            + [layer.module._buffers for layer in layers if layer.statistics]
        )
        for layer in layers:
            for parameter in layer.parameters:
                _attached[parameter] = weakref.ref(self)  # so that nothing keeps the parameter

    def remove(self) -> None:
        for layer in self._layers:
            for parameter in layer.parameters:
                watch = _attached.get(parameter)
                if watch is not None and watch() is self:
                    del _attached[parameter]

    @property
    def has_changed(self) -> bool:
        """Cheap enough for every iteration."""
        return self._contents.has_changed or self._watch.first_changed() is not None

    def changes(self) -> list[str]:
        """What has changed, for people."""
        now = dict(self._model.named_parameters())
        lines = [f"parameter '{name}' is gone" for name in self._parameters if name not in now]
        for name, parameter in now.items():
            if name not in self._parameters:
                lines.append(f"parameter '{name}' is new")
            elif parameter is not self._parameters[name]:
                lines.append(f"parameter '{name}' is another object")
            elif _state(parameter) != self._states[name]:
                lines.append(f"parameter '{name}' was {self._states[name]} and is {_state(parameter)}")
        if not lines and (changed := self._watch.first_changed()) is not None:
            lines.append(f"parameter '{list(now)[changed]}' was converted and back")
        return lines or ["modules or running statistics were added or replaced"]

    def new_parameters(self) -> list[nn.Parameter]:
        """Parameters of the model that it did not have when the watch was made."""
        before = set(map(id, self._parameters.values()))
        return [parameter for parameter in self._model.parameters() if id(parameter) not in before]


def _state(parameter: torch.Tensor) -> str:
    trained = "trained" if parameter.requires_grad else "frozen"
    return f"{trained}, {parameter.dtype}, {tuple(parameter.shape)} on {parameter.device.type}"
