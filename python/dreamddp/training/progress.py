"""Shows people on standard error what a run is doing: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from dreamddp._core import format_seconds
from dreamddp.report_text import link_text
from dreamddp.training.prediction_table import prediction_table

LINE_SECONDS = 15.0


class RunView:
    """Takes the messages of rank 0. Not thread-safe."""

    def __init__(self, planners: Sequence[str], steps: int, console: Console | None = None) -> None:
        self._console = console if console is not None else Console(stderr=True)
        self._planners = list(planners)
        self._steps = steps
        self._progress = Progress(
            TextColumn("{task.description}", justify="left"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._predictions: list[Mapping[str, Any]] = []
        self._phase = ""
        self._last_line = 0.0

    def __enter__(self) -> RunView:
        self._progress.start()
        self._console.print("starting the workers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, message: Mapping[str, Any]) -> None:
        """Shows one message; those that say nothing to people are passed over."""
        if message["kind"] == "link":
            self._console.print(link_text(message))
        elif message["kind"] == "plan":
            self._predictions.append(message)
            if len(self._predictions) == len(self._planners):
                self._console.print(prediction_table(self._predictions))
        elif message["kind"] == "progress" and message["phase"] == "training":
            self._show_training(message)
        elif message["kind"] == "progress" and message["phase"] != self._phase:
            self._phase = message["phase"]
            self._console.print(self._phase)

    def _show_training(self, message: Mapping[str, Any]) -> None:
        planner, done = message["planner"], message["done"]
        status = f"{format_seconds(message['seconds'])} per step, loss {message['loss']:.3f}"
        if planner not in self._tasks:
            self._tasks[planner] = self._progress.add_task(planner, total=self._steps, status="")
        self._progress.update(self._tasks[planner], completed=done, status=status)
        now = time.monotonic()
        if self._progress.disable and (now - self._last_line >= LINE_SECONDS or done in (1, self._steps)):
            self._last_line = now
            self._console.print(f"{planner}: step {done} of {self._steps}, {status}")
