"""Callables for the hooks of modules, which stay with the model that they were installed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ModuleHook:
    """A hook of a module.

    `copy.deepcopy(model)` and `torch.save(model)` take a module's hooks along; a copy of this one does
    nothing, so that the copy of a model is a model to which nothing is attached.

    Args:
        function: what the hook does.
        before_copy: called when the model is copied.
    """

    def __init__(self, function: Callable[..., Any], before_copy: Callable[[], None] | None = None) -> None:
        self._function = function
        self._before_copy = before_copy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    # torch.compile leaves hooks out of its graphs.
    __call__._torchdynamo_disable = True  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._before_copy is not None:
            self._before_copy()
        return ModuleHook, (_do_nothing,)


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    pass
