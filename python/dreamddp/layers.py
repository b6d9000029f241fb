"""Layers of a model: the modules that own trainable parameters. Design section 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import nn

from dreamddp._core import reject

LOOP = "(loop)"
"""Name of the profile's first layer: it owns nothing and stands for the time of the user's own loop, between
a step and the next forward and between a backward and its step."""

ROOT = "(root)"
"""Name of the layer for parameters that the model itself owns, outside all submodules."""

AVERAGED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


@dataclass(frozen=True)
class ModelLayer:
    """A module with the trainable parameters that it owns."""

    name: str
    module: nn.Module
    parameters: tuple[nn.Parameter, ...]
    statistics: tuple[torch.Tensor, ...] = ()
    """Running statistics of a normalisation: averaged with the parameters (design section 9.7)."""

    @property
    def num_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.parameters)


def layer_name(module_name: str) -> str:
    return module_name or ROOT


def find_layers(model: nn.Module) -> list[ModelLayer]:
    """Layers of a model in the order of its modules.

    A tied parameter belongs to the first module that owns it. Frozen and empty parameters are left out.

    Raises:
        ValueError: for lazy modules that have not been run yet, for dtypes that have no mean, and for
            trainable parameters and running statistics on several devices.
    """
    layers: list[ModelLayer] = []
    seen: set[int] = set()
    first_on: dict[torch.device, str] = {}
    for module_name, module in model.named_modules():
        own: list[nn.Parameter] = []
        for name, parameter in module.named_parameters(recurse=False):
            full_name = f"{module_name}.{name}" if module_name else name
            if nn.parameter.is_lazy(parameter):
                reject_lazy(f"parameter '{full_name}'")
            if id(parameter) in seen or not parameter.requires_grad or parameter.numel() == 0:
                continue
            if parameter.dtype not in AVERAGED or parameter.layout != torch.strided:
                reject(
                    f"parameter '{full_name}'",
                    f"dtype {parameter.dtype}, layout {parameter.layout}",
                    "dense floating-point or complex values",
                    "Freeze it (requires_grad=False) or convert it.",
                )
            seen.add(id(parameter))
            own.append(parameter)
            first_on.setdefault(parameter.device, f"'{full_name}'")
        if own:
            statistics = _running_statistics(module)
            for tensor in statistics:
                first_on.setdefault(tensor.device, f"statistics of '{layer_name(module_name)}'")
            layers.append(ModelLayer(layer_name(module_name), module, tuple(own), statistics))
    if len(first_on) > 1:
        reject(
            "devices of the model",
            ", ".join(f"{device} (first {name})" for device, name in first_on.items()),
            "one device in each process",
            "Move the model to one device, or freeze (requires_grad=False) what is on another.",
        )
    return layers


def _running_statistics(module: nn.Module) -> tuple[torch.Tensor, ...]:
    """SyncBatchNorm keeps its statistics equal by itself."""
    if not isinstance(module, nn.modules.batchnorm._NormBase) or isinstance(module, nn.SyncBatchNorm):
        return ()
    found = (module.running_mean, module.running_var)
    return tuple(tensor for tensor in found if tensor is not None and tensor.numel() > 0)


def reject_lazy(name: str) -> NoReturn:
    reject(
        name,
        "no values yet",
        "an initialised one",
        "Run one forward with a dummy batch before attaching DreamDDP.",
    )
