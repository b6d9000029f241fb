"""`dreamddp train` and `dreamddp profile`: their flags, and who does the work. Does not import torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dreamddp._core import Profile, parse_bytes_per_second, parse_seconds
from dreamddp.report import write_report
from dreamddp.training.config import (
    EmulatedLink,
    ProfileConfig,
    TorchrunRank,
    TrainConfig,
    reject,
)
from dreamddp.training.jobs import ProfileJob, TrainJob, profile_rank, train_rank
from dreamddp.training.launcher import Message, RankContext, Target, WorkerFailed, run_workers
from dreamddp.training.models import MODELS
from dreamddp.training.progress import RunView
from dreamddp.training.record import of_kind
from dreamddp.training.run_folder import RunFolder
from dreamddp.training.tables import print_profile_table, print_train_table
from dreamddp.training.text import min_text_bytes, read_text

__all__ = [
    "add_profile_arguments",
    "add_train_arguments",
    "print_profile_table",
    "print_train_table",
    "run_profile",
    "run_train",
]

DEFAULT_WORKERS, DEFAULT_BANDWIDTH, DEFAULT_LATENCY = 2, "100Mbit/s", "1ms"
# More than any of the models has, in float32: what the slowest collective may have to move.
LARGEST_MODEL_BYTES = 40e6
TIMEOUT_SECONDS = 240.0
# A hanging collective is found by its own timeout, which says more than silence does.
SILENCE_SECONDS = 60.0


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `dreamddp train`."""
    _add_model_arguments(parser)
    parser.add_argument(
        "--workers", type=int, metavar="K", help=f"ranks to start here; default {DEFAULT_WORKERS}"
    )
    parser.add_argument(
        "--planners",
        metavar="P,..",
        default="ddp,local-sgd,balanced",
        help="trained with in turn, from the same start; ddp is PyTorch's own; default %(default)s",
    )
    parser.add_argument("--period", metavar="H", default="auto", help="iterations, or auto (the default)")
    parser.add_argument(
        "--bandwidth", metavar="RATE", help=f"of the emulated link; default {DEFAULT_BANDWIDTH}"
    )
    parser.add_argument("--latency", metavar="TIME", help=f"of the emulated link; default {DEFAULT_LATENCY}")
    parser.add_argument(
        "--steps", type=int, metavar="N", default=100, help="per planner; default %(default)s"
    )
    parser.add_argument(
        "--learning-rate", type=float, metavar="R", default=1e-3, help="of AdamW; default %(default)s"
    )
    parser.add_argument(
        "--output", metavar="DIR", help="the run folder, new or empty; default runs/DATE-TIME"
    )
    parser.epilog = (
        "Started by torchrun, this is one rank of a run over the real link, which is measured first: "
        "--workers, --bandwidth and --latency are not allowed then."
    )


def add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `dreamddp profile`."""
    _add_model_arguments(parser)
    parser.add_argument(
        "--workers", type=int, metavar="K", help="ranks that compute at the same time; default 1"
    )
    parser.add_argument("--iterations", type=int, metavar="N", default=15, help="default %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", default="profile.json", help="default %(default)s")


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    summaries = "; ".join(f"{name}: {spec.summary}" for name, spec in MODELS.items())
    parser.add_argument(
        "--model", metavar="NAME", default="gpt2-tiny", help=f"default %(default)s. {summaries}"
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="a file or a folder of text; default: the source files of Python's standard library",
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="B", default=4, help="sequences per rank; default %(default)s"
    )
    parser.add_argument("--seed", type=int, metavar="S", default=0, help="default %(default)s")


def train_config(args: argparse.Namespace, torchrun: TorchrunRank | None) -> TrainConfig:
    """The checked configuration. Raises ValueError naming the flag."""
    planners = tuple(name.strip() for name in args.planners.split(",") if name.strip())
    return TrainConfig(
        model=args.model,
        data=Path(args.data) if args.data is not None else None,
        workers=_workers(args, torchrun, DEFAULT_WORKERS),
        planners=planners,
        period=_period(args.period),
        link=_emulated_link(args, torchrun),
        steps=args.steps,
        batch_size=args.batch_size,
        seed=args.seed,
        learning_rate=args.learning_rate,
        output=Path(args.output) if args.output is not None else _new_folder(),
    )


def _workers(args: argparse.Namespace, torchrun: TorchrunRank | None, default: int) -> int:
    if torchrun is None:
        return default if args.workers is None else int(args.workers)
    _reject_under_torchrun("--workers", args.workers, "torchrun says how many ranks there are")
    return torchrun.world_size


def _emulated_link(args: argparse.Namespace, torchrun: TorchrunRank | None) -> EmulatedLink | None:
    if torchrun is not None:
        _reject_under_torchrun("--bandwidth", args.bandwidth, "the real link is used, and measured")
        _reject_under_torchrun("--latency", args.latency, "the real link is used, and measured")
        return None
    bandwidth = DEFAULT_BANDWIDTH if args.bandwidth is None else args.bandwidth
    latency = DEFAULT_LATENCY if args.latency is None else args.latency
    return EmulatedLink(
        bandwidth_bytes_per_second=parse_bytes_per_second(bandwidth, "--bandwidth"),
        latency_seconds=parse_seconds(latency, "--latency"),
    )


def _reject_under_torchrun(flag: str, value: object, reason: str) -> None:
    if value is not None:
        reject(flag, value, "nothing under torchrun", f"Leave it out: {reason}.")


def _period(text: str) -> int | None:
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        reject("--period", repr(text), "a whole number of at least 1, or auto")


def _new_folder() -> Path:
    return Path("runs") / datetime.now().astimezone().strftime("%Y-%m-%d-%H%M%S")


def run_train(args: argparse.Namespace) -> dict[str, object] | None:
    """Trains and writes the run folder.

    Returns the object of `--json`, or None on a rank of torchrun's other than the first, which prints
    nothing. Raises ValueError for bad input, before anything is started, and WorkerFailed when a rank failed.
    """
    torchrun = TorchrunRank.from_environment()
    config = train_config(args, torchrun)
    _check_packages(config.model)
    text = read_text(config.data, min_bytes=min_text_bytes(MODELS[config.model].window_bytes))
    bandwidth = config.link.bandwidth_bytes_per_second if config.link is not None else None
    timeout_seconds = TIMEOUT_SECONDS + (0.0 if bandwidth is None else 10 * LARGEST_MODEL_BYTES / bandwidth)
    job = TrainJob(config=config, text=text, timeout_seconds=timeout_seconds)
    if torchrun is not None and torchrun.rank != 0:
        _run_ranks(train_rank, job, config.workers, torchrun, lambda _: None, timeout_seconds)
        return None
    with RunFolder(config) as folder:
        with RunView(config.planners, config.steps) as view:

            def take(message: Message) -> None:
                folder.take(message)
                view.show(message)

            try:
                _run_ranks(train_rank, job, config.workers, torchrun, take, timeout_seconds)
            except WorkerFailed as error:
                (folder.path / "failure.txt").write_text(f"{error}\n\n{error.details}", encoding="utf-8")
                raise
        records = folder.complete()
    write_report(folder.path, folder.path / "report.html")
    rows = [{name: value for name, value in row.items() if name != "kind"} for row in of_kind(records, "row")]
    return {"rows": rows, "output": str(folder.path)}


def run_profile(args: argparse.Namespace) -> dict[str, object] | None:
    """Measures a model and writes its profile. Returns and raises as run_train() does."""
    torchrun = TorchrunRank.from_environment()
    config = ProfileConfig(
        model=args.model,
        data=Path(args.data) if args.data is not None else None,
        workers=_workers(args, torchrun, 1),
        real_link=torchrun is not None,
        iterations=args.iterations,
        batch_size=args.batch_size,
        seed=args.seed,
    )
    _check_packages(config.model)
    text = read_text(config.data, min_bytes=min_text_bytes(MODELS[config.model].window_bytes))
    job = ProfileJob(config=config, text=text, timeout_seconds=TIMEOUT_SECONDS)
    messages: list[Message] = []
    _run_ranks(profile_rank, job, config.workers, torchrun, messages.append, TIMEOUT_SECONDS)
    if torchrun is not None and torchrun.rank != 0:
        return None
    profile = Profile.from_json(next(m["text"] for m in messages if m["kind"] == "file"))
    profile.save(args.output)
    link = next((m for m in messages if m["kind"] == "link"), None)
    return {
        "output": args.output,
        "model": config.model,
        "workers": config.workers,
        "layers": len(profile.layers),
        "forward_seconds": sum(layer.forward_seconds for layer in profile.layers),
        "backward_seconds": sum(layer.backward_seconds for layer in profile.layers),
        "step_seconds": profile.step_seconds,
        "num_bytes": sum(layer.num_bytes or 0 for layer in profile.layers),
        "bandwidth_bytes_per_second": link and link["bandwidth_bytes_per_second"],
        "latency_seconds": link and link["latency_seconds"],
    }


def _check_packages(model: str) -> None:
    if model.startswith("gpt2") and find_spec("transformers") is None:
        reject(
            "--model", repr(model), "a model whose packages are installed", "Run pip install transformers."
        )


def _run_ranks(
    target: Target,
    job: Any,
    workers: int,
    torchrun: TorchrunRank | None,
    take: Callable[[Message], None],
    timeout_seconds: float,
) -> None:
    """Starts the ranks here and passes on what rank 0 emits, or is one of torchrun's ranks itself."""
    if torchrun is not None:
        with _output_to_errors():
            target(RankContext(torchrun.rank, workers, None, take), job)
        return

    def on_message(rank: int, message: Message) -> None:
        if rank == 0:
            take(message)

    run_workers(
        target,
        job,
        workers=workers,
        on_message=on_message,
        stall_seconds=timeout_seconds + SILENCE_SECONDS,
    )


@contextmanager
def _output_to_errors() -> Iterator[None]:
    """Standard output is for the command's result: what libraries print goes to standard error inside."""
    sys.stdout.flush()
    output = sys.stdout.fileno()
    kept = os.dup(output)
    os.dup2(sys.stderr.fileno(), output)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, output)
        os.close(kept)
