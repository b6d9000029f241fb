"""The flags and checks that `train` and `profile` share. Does not import torch."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from dreamddp._core import reject
from dreamddp.training.config import ProfileConfig, TorchrunRank, TrainConfig
from dreamddp.training.models import MODELS
from dreamddp.training.text import min_text_bytes, read_text


def add_model_arguments(
    parser: argparse.ArgumentParser, config: type[TrainConfig] | type[ProfileConfig]
) -> None:
    """Defaults are those of the configuration."""
    summaries = "; ".join(f"{name}: {spec.summary}" for name, spec in MODELS.items())
    parser.add_argument(
        "--model", metavar="NAME", default=config.model, help=f"default %(default)s. {summaries}"
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="a file or a folder of text; default: the source files of Python's standard library",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        metavar="B",
        default=config.batch_size,
        help="sequences per rank; default %(default)s",
    )
    parser.add_argument("--seed", type=int, metavar="S", default=config.seed, help="default %(default)s")


def data_from(args: argparse.Namespace) -> Path | None:
    return Path(args.data) if args.data is not None else None


def workers_from(args: argparse.Namespace, torchrun: TorchrunRank | None, default: int) -> int:
    """The number of ranks. ValueError where it is given under torchrun."""
    if torchrun is None:
        return default if args.workers is None else int(args.workers)
    reject_under_torchrun("--workers", args.workers, "torchrun says how many ranks there are")
    return torchrun.world_size


def reject_under_torchrun(flag: str, value: object, reason: str) -> None:
    if value is not None:
        reject(flag, value, "nothing under torchrun", f"Leave it out: {reason}.")


def read_text_for(model: str, data: Path | None) -> bytes:
    """Enough text for the model. ValueError where there is less, or a package that it needs is missing."""
    if model.startswith("gpt2") and find_spec("transformers") is None:
        reject(
            "--model", repr(model), "a model whose packages are installed", "Run pip install transformers."
        )
    return read_text(data, min_bytes=min_text_bytes(MODELS[model].window_bytes))
