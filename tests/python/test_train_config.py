"""Every setting of a run out of range is refused by a message that names flag, value and range."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from dreamddp.commands import profile, train
from dreamddp.commands.train import train_config
from dreamddp.training.config import EmulatedLink, TorchrunRank, TrainConfig

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    return parser.parse_args(flags)


def test_defaults_are_three_planners_over_a_slow_emulated_link() -> None:
    config = train_config(parse(), None)
    assert config.planners == ("ddp", "local-sgd", "balanced")
    assert config.period is None
    assert config.workers == 2
    assert config.link == EmulatedLink(bandwidth_bytes_per_second=12.5e6, latency_seconds=1e-3)
    assert config.output.parent == Path("runs")
    assert config == TrainConfig(link=config.link, output=config.output)


def test_flags_reach_the_configuration() -> None:
    flags = "--model mlp --workers 4 --planners balanced,ddp --period 7 --bandwidth 8MB/s --latency 2ms"
    more = "--steps 9 --batch-size 3 --seed 5 --learning-rate 0.5 --output out --data text"
    config = train_config(parse(*flags.split(), *more.split()), None)
    assert config == TrainConfig(
        model="mlp",
        data=Path("text"),
        workers=4,
        planners=("balanced", "ddp"),
        period=7,
        link=EmulatedLink(bandwidth_bytes_per_second=8e6, latency_seconds=2e-3),
        steps=9,
        batch_size=3,
        seed=5,
        learning_rate=0.5,
        output=Path("out"),
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps", "0"], "--steps: got 0; expected a number of at least 1"),
        (["--workers", "1"], "--workers: got 1; expected a number from 2 to 64. Give 2 or more"),
        (["--workers", "65"], "--workers: got 65; expected a number from 2 to 64"),
        (["--batch-size", "0"], "--batch-size: got 0; expected a number of at least 1"),
        (["--seed", "-1"], "--seed: got -1; expected a number of at least 0"),
        (["--period", "0"], "--period: got '0'; expected a whole number from 1 to 1000000, or auto"),
        (["--period", "often"], "--period: got 'often'; expected a whole number from 1 to 1000000, or auto"),
        (["--bandwidth", "0"], "--bandwidth: got"),
        (["--bandwidth", "fast"], "--bandwidth: got"),
        (["--latency", "-1ms"], "--latency: got"),
        (["--latency", "5"], "--latency: got"),
        (["--learning-rate", "0"], "--learning-rate: got 0.0; expected a number above 0"),
        (["--learning-rate", "nan"], "--learning-rate: got nan; expected a number above 0"),
        (["--model", "gpt5"], "--model: got 'gpt5'; expected one of gpt2-tiny, "),
        (["--planners", ""], "--planners: got none; expected at least one planner"),
        (["--planners", "ddp,magic"], "--planners: got 'magic'; expected one of ssgd, "),
        (["--planners", "ddp,ddp"], "--planners: got 'ddp' twice; expected each planner once"),
        (["--data", "no/such/path"], "--data: got no/such/path; expected a file or a folder that exists"),
    ],
)
def test_bad_flags_are_refused_before_anything_starts(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = parse("--model=mlp", *(f"{flags[0]}={value}" for value in flags[1:]))
    with pytest.raises(ValueError, match=re.escape(message)):
        train.run(args)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("bandwidth", "latency", "flag"),
    [(0.0, 0.0, "--bandwidth"), (float("inf"), 0.0, "--bandwidth"), (1.0, -1.0, "--latency")],
)
def test_link_out_of_range_is_refused(bandwidth: float, latency: float, flag: str) -> None:
    with pytest.raises(ValueError, match=flag):
        EmulatedLink(bandwidth_bytes_per_second=bandwidth, latency_seconds=latency)


def test_torchrun_gives_the_ranks_and_the_real_link() -> None:
    torchrun = TorchrunRank.from_environment(TORCHRUN)
    assert torchrun == TorchrunRank(rank=1, world_size=3)
    config = train_config(parse(), torchrun)
    assert (config.workers, config.link) == (3, None)


def test_without_torchrun_there_is_no_rank() -> None:
    assert TorchrunRank.from_environment({"MASTER_ADDR": "10.0.0.1"}) is None


@pytest.mark.parametrize("flag", ["--workers=3", "--bandwidth=1MB/s", "--latency=1ms"])
def test_flags_of_the_emulated_link_are_refused_under_torchrun(flag: str) -> None:
    name = flag.partition("=")[0]
    with pytest.raises(ValueError, match=f"{name}: got .*; expected nothing under torchrun. Leave it out"):
        train_config(parse(flag), TorchrunRank(rank=0, world_size=2))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"RANK": "3"}, "RANK"),
        ({"RANK": "first"}, "RANK"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR"),
        ({"RANK": None}, "RANK"),
    ],
)
def test_broken_torchrun_variables_are_named(changes: dict[str, Any], name: str) -> None:
    environment = {key: value for key, value in {**TORCHRUN, **changes}.items() if value is not None}
    with pytest.raises(ValueError, match=f"environment variable {name}: got"):
        TorchrunRank.from_environment(environment)


@pytest.mark.parametrize("flag", ["--workers=0", "--iterations=4", "--batch-size=0", "--model=none"])
def test_profile_refuses_what_is_out_of_range(flag: str) -> None:
    parser = argparse.ArgumentParser()
    profile.add_arguments(parser)
    with pytest.raises(ValueError, match=f"{flag.partition('=')[0]}: got"):
        profile.run(parser.parse_args([flag]))
