"""`dreamddp profile`: measures a model here. Does not import torch."""

import argparse
from collections.abc import Mapping
from typing import Any

from dreamddp._core import Profile, format_num_bytes, format_seconds
from dreamddp.commands.model_arguments import add_model_arguments, data_from, read_text_for, workers_from
from dreamddp.report_text import link_text
from dreamddp.training.all_ranks import run_all_ranks
from dreamddp.training.config import ProfileConfig, TorchrunRank
from dreamddp.training.jobs import TIMEOUT_SECONDS, ProfileJob, profile_rank
from dreamddp.training.launcher import Message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, ProfileConfig)
    parser.add_argument(
        "--workers",
        type=int,
        metavar="K",
        help=f"ranks that compute at the same time; default {ProfileConfig.workers}",
    )
    parser.add_argument(
        "--iterations", type=int, metavar="N", default=ProfileConfig.iterations, help="default %(default)s"
    )
    parser.add_argument("-o", "--output", metavar="FILE", default="profile.json", help="default %(default)s")


def run(args: argparse.Namespace) -> dict[str, object] | None:
    """Measures a model and writes its profile.

    Returns the object of `--json`, or None on a rank of torchrun's other than the first, which prints
    nothing. Raises ValueError for bad input, before anything is started, and WorkerFailed when a rank failed.
    """
    torchrun = TorchrunRank.from_environment()
    config = ProfileConfig(
        model=args.model,
        data=data_from(args),
        workers=workers_from(args, torchrun, ProfileConfig.workers),
        real_link=torchrun is not None,
        iterations=args.iterations,
        batch_size=args.batch_size,
        seed=args.seed,
    )
    text = read_text_for(config.model, config.data)
    job = ProfileJob(config=config, text=text, timeout_seconds=TIMEOUT_SECONDS)
    messages: list[Message] = []
    run_all_ranks(profile_rank, job, torchrun, messages.append)
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


def print_table(result: Mapping[str, Any]) -> None:
    parts = [
        f"{name} {format_seconds(result[f'{name}_seconds'])}" for name in ("forward", "backward", "step")
    ]
    print(
        f"{result['output']}: {result['model']}, {result['layers']} layers, "
        f"{format_num_bytes(result['num_bytes'])}, {', '.join(parts)}"
    )
    if result["bandwidth_bytes_per_second"] is not None:
        print(link_text({**result, "emulated": False}))
