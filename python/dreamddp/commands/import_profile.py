"""`dreamddp import-profile`: reads the published layer times."""

import argparse
import sys
from pathlib import Path

from dreamddp._core import compute_seconds, import_public_profile, parse_bytes_per_second, read_text_file
from dreamddp.commands.output_file import check_output
from dreamddp.commands.rows import text_of
from dreamddp.commands.whole_number import whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="holds backward.json and sync.json")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write the profile")
    parser.add_argument(
        "--forward-ratio",
        metavar="RATIO",
        type=float,
        default=0.5,
        help="forward time over backward time, as the files have no forward times; default %(default)s",
    )
    parser.add_argument(
        "--assume-bandwidth",
        metavar="RATE",
        help="estimate the layers' sizes, which the files do not have, from their link times at this rate",
    )
    parser.add_argument(
        "--workers",
        metavar="K",
        type=whole_number,
        default=2,
        help="of the run, for --assume-bandwidth; default %(default)s",
    )
    parser.add_argument("--nan-as-zero", action="store_true", help="take bare NaN as 0, with a warning")


def run(args: argparse.Namespace) -> dict[str, object]:
    directory = Path(args.directory)
    check_output("-o", args.output, directory / "backward.json", directory / "sync.json")
    rate = args.assume_bandwidth
    profile, warnings = import_public_profile(
        read_text_file(directory / "backward.json"),
        read_text_file(directory / "sync.json"),
        forward_ratio=args.forward_ratio,
        nan_as_zero=args.nan_as_zero,
        assumed_bandwidth_bytes_per_second=None
        if rate is None
        else parse_bytes_per_second(rate, "--assume-bandwidth"),
        workers=args.workers,
    )
    profile.save(args.output)
    for warning in warnings:
        print(f"dreamddp: warning: {warning}", file=sys.stderr)
    return {
        "output": args.output,
        "layers": len(profile.layers),
        "compute_seconds": compute_seconds(profile),
        "transfer_seconds": sum(layer.transfer_seconds or 0.0 for layer in profile.layers),
        "num_bytes": sum(layer.num_bytes or 0 for layer in profile.layers) if rate is not None else None,
        "warnings": warnings,
    }


def print_table(result: dict[str, object]) -> None:
    print(
        f"{result['output']}: {result['layers']} layers, compute {text_of(result, 'compute_seconds')}, "
        f"link time of the whole model {text_of(result, 'transfer_seconds')}"
    )
