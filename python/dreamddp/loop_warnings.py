"""Warnings of training loops in which less, or more, is averaged than their authors may think."""

from __future__ import annotations

import warnings


class AccumulationWarning:
    """Warns once where gradients are accumulated without no_sync().

    A loss scaler skips steps too, but not before every step.
    """

    def __init__(self) -> None:
        self._skipped = 0
        self._steps_in_a_row = 0
        self._has_warned = False

    def step_was_skipped(self) -> None:
        self._skipped += 1

    def step_ends(self) -> None:
        self._steps_in_a_row = self._steps_in_a_row + 1 if self._skipped else 0
        if self._steps_in_a_row == 3 and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"DreamDDP: {self._skipped + 1} backwards come before each step, and each counts as an "
                "iteration of the plan. To accumulate gradients, put all but the last under no_sync().",
                stacklevel=2,
            )
        self._skipped = 0


class MissingBackwardWarning:
    """Warns once where steps follow forwards, but no backward that the engine sees: nothing is averaged."""

    def __init__(self) -> None:
        self._forward_has_begun = False
        self._steps_in_a_row = 0
        self._has_warned = False

    def forward_begins(self) -> None:
        self._forward_has_begun = True

    def step_ends(self, *, had_backward: bool) -> None:
        if had_backward:
            self._steps_in_a_row = 0
        elif self._forward_has_begun:
            self._steps_in_a_row += 1
        self._forward_has_begun = False
        if self._steps_in_a_row == 3 and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "DreamDDP: three steps in a row without a backward of their own, and nothing is averaged. "
                "Gradients must come from loss.backward() outside no_sync(); torch.autograd.grad() does not "
                "tell the engine of them.",
                stacklevel=2,
            )
