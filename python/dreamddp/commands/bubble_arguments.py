"""The options of bubble filling."""

import argparse

from dreamddp._core import Profile, reject


def add_bubble_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fill-bubbles",
        action="store_true",
        help="average layers more often where the link is idle: iterations stay as long, traffic grows",
    )
    parser.add_argument(
        "--drift",
        metavar="LAYER,..",
        help="for --fill-bubbles: the layers that drift most, the first one most; default: the output side",
    )


def drift_from(args: argparse.Namespace, profile: Profile) -> list[float]:
    """A number per layer, larger for those named first, 0 for the others; empty where none is named."""
    if args.drift is None:
        return []
    if not args.fill_bubbles:
        reject("--drift", repr(args.drift), "it only with --fill-bubbles", "Add --fill-bubbles.")
    layers = {layer.name: index for index, layer in enumerate(profile.layers)}
    names = args.drift.split(",")
    drift = [0.0] * len(layers)
    for rank, name in enumerate(names):
        if name not in layers:
            reject(
                "--drift", repr(name), "names of layers of the profile", "Take them from the profile file."
            )
        drift[layers[name]] = max(drift[layers[name]], float(len(names) - rank))
    return drift
