"""`dreamddp train`: trains with one planner after the other. Does not import torch."""

import argparse
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dreamddp._core import parse_bytes_per_second, parse_seconds, reject
from dreamddp.commands.model_arguments import (
    add_model_arguments,
    data_from,
    read_text_for,
    reject_under_torchrun,
    workers_from,
)
from dreamddp.commands.plan_arguments import parse_period
from dreamddp.policies import policies_json
from dreamddp.report import write_report
from dreamddp.report_text import COLUMNS
from dreamddp.training.all_ranks import run_all_ranks
from dreamddp.training.config import EmulatedLink, TorchrunRank, TrainConfig
from dreamddp.training.jobs import TIMEOUT_SECONDS, TrainJob, train_rank
from dreamddp.training.launcher import Message, WorkerFailed
from dreamddp.training.progress import RunView
from dreamddp.training.record import of_kind
from dreamddp.training.run_folder import RunFolder

DEFAULT_BANDWIDTH, DEFAULT_LATENCY = "100Mbit/s", "1ms"
# More than any of the models has, in float32: what the slowest collective may have to move.
LARGEST_MODEL_BYTES = 40e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, TrainConfig)
    parser.add_argument(
        "--workers", type=int, metavar="K", help=f"ranks to start here; default {TrainConfig.workers}"
    )
    parser.add_argument(
        "--planners",
        metavar="P,..",
        default=",".join(TrainConfig.planners),
        help="trained with in turn, from the same start; ddp is PyTorch's own; default %(default)s",
    )
    parser.add_argument(
        "--policies",
        metavar="FILE",
        help="train with these policies, too: rules that decide which layers are averaged in an iteration, "
        "such as dreamddp sensitivity writes",
    )
    parser.add_argument("--period", metavar="H", default="auto", help="iterations, or auto (the default)")
    parser.add_argument(
        "--bandwidth", metavar="RATE", help=f"of the emulated link; default {DEFAULT_BANDWIDTH}"
    )
    parser.add_argument("--latency", metavar="TIME", help=f"of the emulated link; default {DEFAULT_LATENCY}")
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        default=TrainConfig.steps,
        help="per planner; default %(default)s",
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        metavar="R",
        default=TrainConfig.learning_rate,
        help="of AdamW; default %(default)s",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="the run folder, new or empty; default runs/DATE-TIME"
    )
    parser.epilog = (
        "Started by torchrun, this is one rank of a run over the real link, which is measured first: "
        "--workers, --bandwidth and --latency are not allowed then."
    )


def train_config(args: argparse.Namespace, torchrun: TorchrunRank | None) -> TrainConfig:
    """The checked configuration. Raises ValueError naming the flag."""
    planners = tuple(name.strip() for name in args.planners.split(",") if name.strip())
    return TrainConfig(
        model=args.model,
        data=data_from(args),
        workers=workers_from(args, torchrun, TrainConfig.workers),
        planners=planners,
        policies=_policies(args.policies),
        period=parse_period(args.period, "--period"),
        link=_emulated_link(args, torchrun),
        steps=args.steps,
        batch_size=args.batch_size,
        seed=args.seed,
        learning_rate=args.learning_rate,
        output=Path(args.output) if args.output is not None else _new_folder(),
    )


def _policies(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return policies_json(Path(path))
    except OSError as error:
        reject(
            "--policies",
            f"{path} ({(error.strerror or str(error)).lower()})",
            "a file of policies that can be read",
            "Write one with dreamddp sensitivity -o.",
        )
    except UnicodeDecodeError:
        reject("--policies", path, "a file of text in UTF-8", "Write one with dreamddp sensitivity -o.")


def _emulated_link(args: argparse.Namespace, torchrun: TorchrunRank | None) -> EmulatedLink | None:
    if torchrun is not None:
        reject_under_torchrun("--bandwidth", args.bandwidth, "the real link is used, and measured")
        reject_under_torchrun("--latency", args.latency, "the real link is used, and measured")
        return None
    bandwidth = DEFAULT_BANDWIDTH if args.bandwidth is None else args.bandwidth
    latency = DEFAULT_LATENCY if args.latency is None else args.latency
    return EmulatedLink(
        bandwidth_bytes_per_second=parse_bytes_per_second(bandwidth, "--bandwidth"),
        latency_seconds=parse_seconds(latency, "--latency"),
    )


def _new_folder() -> Path:
    return Path("runs") / datetime.now().astimezone().strftime("%Y-%m-%d-%H%M%S")


def run(args: argparse.Namespace) -> dict[str, object] | None:
    """Trains and writes the run folder.

    Returns the object of `--json`, or None on a rank of torchrun's other than the first, which prints
    nothing. Raises ValueError for bad input, before anything is started, and WorkerFailed when a rank failed.
    """
    torchrun = TorchrunRank.from_environment()
    config = train_config(args, torchrun)
    text = read_text_for(config.model, config.data)
    bandwidth = config.link.bandwidth_bytes_per_second if config.link is not None else None
    timeout_seconds = TIMEOUT_SECONDS + (0.0 if bandwidth is None else 10 * LARGEST_MODEL_BYTES / bandwidth)
    job = TrainJob(config=config, text=text, timeout_seconds=timeout_seconds)
    if torchrun is not None and torchrun.rank != 0:
        run_all_ranks(train_rank, job, torchrun, lambda _: None)
        return None
    with RunFolder(config) as folder:
        with RunView(config.methods, config.steps) as view:

            def take(message: Message) -> None:
                folder.take(message)
                view.show(message)

            try:
                run_all_ranks(train_rank, job, torchrun, take)
            except WorkerFailed as error:
                (folder.path / "failure.txt").write_text(f"{error}\n\n{error.details}", encoding="utf-8")
                raise
        records = folder.complete()
    write_report(folder.path, folder.path / "report.html")
    rows = [{name: value for name, value in row.items() if name != "kind"} for row in of_kind(records, "row")]
    return {"rows": rows, "output": str(folder.path)}


def print_table(result: Mapping[str, Any]) -> None:
    # A column for each planner: terminals are narrow, and there are more quantities than planners.
    table = Table()
    table.add_column("")
    for row in result["rows"]:
        table.add_column(row["planner"], justify="right")
    for column in COLUMNS:
        if column.key != "planner":
            table.add_row(column.title, *(column.text(row) for row in result["rows"]))
    console = Console()
    console.print(table)
    console.print(f"report: {Path(result['output']) / 'report.html'}", soft_wrap=True, markup=False)
