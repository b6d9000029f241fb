"""The link options, shared by all commands that plan or simulate."""

import argparse

from dreamddp._core import Link, parse_bytes_per_second, parse_seconds
from dreamddp.commands.whole_number import whole_number


def add_link_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("link")
    group.add_argument(
        "--bandwidth",
        metavar="RATE",
        help="such as 100Mbit/s or 10MB/s; without it the profile's transfer times are used",
    )
    group.add_argument(
        "--latency", metavar="TIME", default="0s", help="added to every op; default %(default)s"
    )
    group.add_argument("--workers", metavar="K", type=whole_number, default=2, help="default %(default)s")
    group.add_argument(
        "--in-flight",
        metavar="M",
        type=whole_number,
        default=1,
        help="ops on the link at once; default %(default)s",
    )


def link_from(args: argparse.Namespace) -> Link:
    """ValueError where a flag is out of range."""
    bandwidth = None if args.bandwidth is None else parse_bytes_per_second(args.bandwidth, "--bandwidth")
    return link_with_bandwidth(args, bandwidth)


def link_with_bandwidth(args: argparse.Namespace, bandwidth_bytes_per_second: float | None) -> Link:
    return Link(
        bandwidth_bytes_per_second=bandwidth_bytes_per_second,
        latency_seconds=parse_seconds(args.latency, "--latency"),
        workers=args.workers,
        in_flight=args.in_flight,
    )
