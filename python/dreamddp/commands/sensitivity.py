"""`dreamddp sensitivity`: how fast the gradients of a model's layers turn, and the periods that fit."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table

from dreamddp._core import format_num_bytes, reject
from dreamddp.commands.model_arguments import add_model_arguments, data_from, read_text_for
from dreamddp.commands.output_file import check_output
from dreamddp.commands.whole_number import whole_number
from dreamddp.policies import take_turns
from dreamddp.training.config import ProfileConfig

DEFAULT_ITERATIONS = 100
DEFAULT_FRACTION = 0.8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, ProfileConfig)
    parser.add_argument(
        "--iterations", type=whole_number, metavar="N", default=DEFAULT_ITERATIONS, help="default %(default)s"
    )
    parser.add_argument(
        "--fraction",
        type=float,
        metavar="F",
        default=DEFAULT_FRACTION,
        help="a layer's period is the longest time in which its gradients keep this much of the similarity "
        "that neighbours have; default %(default)s",
    )
    parser.add_argument(
        "--sketch",
        type=whole_number,
        metavar="K",
        help="numbers kept of each gradient; 0: all of them, which takes nine times the model; default 4093",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the proposal as a file of policies")


def run(args: argparse.Namespace) -> dict[str, object]:
    """Trains the model here, in one process, and returns the object of `--json`.

    Raises ValueError for bad input, before anything is trained.
    """
    config = ProfileConfig(model=args.model, data=data_from(args), batch_size=args.batch_size, seed=args.seed)
    if not 0 < args.fraction <= 1:
        reject("--fraction", args.fraction, "a number above 0 and at most 1", "Use 0.8 for a cautious one.")
    check_output("--output", args.output, *([config.data] if config.data is not None else []))
    text = read_text_for(config.model, config.data)

    from dreamddp.sensitivity import MIN_ITERATIONS
    from dreamddp.training import sensitivity_run

    iterations = args.iterations
    if iterations < MIN_ITERATIONS:
        reject("--iterations", iterations, f"at least {MIN_ITERATIONS}", "Run more.")
    with _Bar(iterations) as advance:
        watch = sensitivity_run.train(config, text, iterations, args.sketch, advance)
    layers = watch.layers(args.fraction)
    if args.output is not None:
        rules = take_turns(
            {layer.layer: layer.period for layer in layers},
            {layer.layer: layer.num_elements for layer in layers},
        )
        policies = {name: rule.to_json() for name, rule in rules.items()}
        Path(args.output).write_text(json.dumps(policies, indent=2) + "\n")
    return {
        "model": config.model,
        "iterations": iterations,
        "memory_bytes": watch.memory_bytes,
        "output": args.output,
        "layers": [
            {
                "layer": layer.layer,
                "num_elements": layer.num_elements,
                "gradient_norm": layer.gradient_norm,
                "similarities": {str(lag): value for lag, value in layer.similarities.items()},
                "period": layer.period,
            }
            for layer in layers
        ],
    }


class _Bar:
    """A bar on stderr; calling what it gives moves it on by one iteration."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        columns = (*Progress.get_default_columns(), TextColumn("{task.fields[loss]}"))
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._total = total

    def __enter__(self) -> Callable[[float], None]:
        self._progress.start()
        task = self._progress.add_task("training", total=self._total, loss="")
        return lambda loss: self._progress.update(task, advance=1, loss=f"loss {loss:.3f}")

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def print_table(result: Mapping[str, Any]) -> None:
    console = Console()
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("layer")
    lags = list(result["layers"][0]["similarities"]) if result["layers"] else []
    for title in ("elements", "gradient norm", *(f"lag {lag}" for lag in lags), "period"):
        table.add_column(title, justify="right")
    for layer in result["layers"]:
        similarities = [_text(value, ".3f") for value in layer["similarities"].values()]
        norm = _text(layer["gradient_norm"], ".3g")
        table.add_row(layer["layer"], f"{layer['num_elements']:,}", norm, *similarities, str(layer["period"]))
    console.print(table)
    console.print(
        "Lag: iterations between two gradients; below it the mean cosine between them. "
        f"Kept for it: {format_num_bytes(result['memory_bytes'])}."
    )
    if result["output"] is not None:
        console.print(
            f"Policies written to {result['output']}", soft_wrap=True, highlight=False, markup=False
        )


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
