"""`dreamddp plan`."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from dreamddp import Layer, Link, Plan, Profile, SearchOptions, Update, choose_period, make_plan, planners
from dreamddp._core import validate_plan
from tests.python.conftest import RunCommand
from tests.python.test_simulate_command import KEYS

PLANNERS = [name for name, _ in planners()]


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_writes_a_valid_plan_that_simulates_alike(
    planner: str, profile_file: Path, tmp_path: Path, command: RunCommand
) -> None:
    output = tmp_path / "plan.json"
    link = ["--latency", "0.25ms", "--in-flight", "2"]
    planned = command(
        "plan", profile_file, "--planner", planner, "--period", "2", *link, "-o", output, "--json"
    ).result
    assert set(planned) == KEYS | {"planning_seconds", "search"}
    assert planned.pop("planning_seconds") >= 0
    search = planned.pop("search")
    assert (search is not None) == (planner in ("dreamddp", "brute-force"))
    assert planned["planner"] == planner
    validate_plan(Plan.load(output), Profile.load(profile_file))
    assert command("simulate", profile_file, output, *link, "--json").result == planned


def test_the_local_sgd_plan_by_hand(profile_file: Path, command: RunCommand) -> None:
    # compute 19 ms, link 19 ms once in 2 iterations, all of it exposed
    result = command("plan", profile_file, "--planner", "local-sgd", "--period", "2", "--json").result
    assert result["iteration_seconds"] == pytest.approx(28.5e-3, rel=1e-9)
    assert result["exposed_seconds"] == pytest.approx(9.5e-3, rel=1e-9)
    assert result["limit_seconds"] == pytest.approx(19e-3, rel=1e-9)
    assert result["bytes_per_iteration"] == 9500


def test_period_auto_is_the_chosen_one(profile_file: Path, command: RunCommand) -> None:
    result = command("plan", profile_file, "--period", "auto", "--json").result
    assert result["period"] == choose_period(Profile.load(profile_file), Link())


def test_bandwidth_replaces_the_measured_transfers(profile_file: Path, command: RunCommand) -> None:
    # 19000 bytes over a ring of 4: 1.5 * 19000 / 1 MB/s = 28.5 ms
    arguments = ["--planner", "ssgd", "--bandwidth", "1MB/s", "--workers", "4", "--json"]
    assert command("plan", profile_file, *arguments).result["link_seconds"] == pytest.approx(
        28.5e-3, rel=1e-9
    )


@pytest.mark.parametrize("planner", PLANNERS)
def test_the_unit_of_the_profile_does_not_matter(
    planner: str, profile_file: Path, tmp_path: Path, command: RunCommand
) -> None:
    plans = []
    for unit, per_ms in (("s", 1e-3), ("ms", 1.0), ("us", 1e3)):
        value = json.loads(profile_file.read_text())
        value["time_unit"] = unit
        value["step"] *= per_ms
        for layer in value["layers"]:
            for field in ("forward", "backward", "transfer"):
                layer[field] *= per_ms
        profile, output = tmp_path / f"profile-{unit}.json", tmp_path / f"plan-{unit}.json"
        profile.write_text(json.dumps(value))
        arguments = ["--planner", planner, "--period", "3", "--fill-bubbles", "-o", output]
        assert command("plan", profile, *arguments).status == 0
        plans.append(Plan.load(output))
    assert plans[0] == plans[1] == plans[2]


def test_the_table_is_for_people(profile_file: Path, command: RunCommand) -> None:
    outcome = command("plan", profile_file, "--planner", "local-sgd", "--period", "2")
    assert outcome.status == 0
    for text in ("local-sgd, period 2", "28.5 ms", "planning"):
        assert text in outcome.out


@pytest.mark.parametrize(
    ("num_layers", "num_bytes"),
    [(1, 12_000_000_000), (3, 10**12), (2, 0), (10_000, 4096)],
    ids=["one layer of 3e9 elements", "1e12 bytes in a layer", "no bytes", "10000 layers"],
)
def test_odd_sizes(num_layers: int, num_bytes: int, tmp_path: Path, command: RunCommand) -> None:
    layers = [
        Layer(f"l{i}", forward_seconds=1e-3, backward_seconds=2e-3, num_bytes=num_bytes)
        for i in range(num_layers)
    ]
    profile, output = tmp_path / "profile.json", tmp_path / "plan.json"
    Profile(layers).save(profile)
    # More iterations than layers, in all cases but the last.
    arguments = ["--period", "7", "--bandwidth", "1GB/s", "--latency", "0.1ms", "-o", output, "--json"]
    result = command("plan", profile, *arguments).result
    validate_plan(Plan.load(output), Profile.load(profile))
    assert result["compute_seconds"] == pytest.approx(3e-3 * num_layers, rel=1e-9)
    assert result["iteration_seconds"] >= result["bound_seconds"] * (1 - 1e-9)
    # Each byte once in a period, over a ring of two.
    assert result["bytes_per_iteration"] == pytest.approx(num_bytes * num_layers / 7, rel=1e-9)
    assert result["link_seconds"] == pytest.approx(num_bytes * num_layers / 7 / 1e9, rel=1e-9)


def test_the_search_is_reported(profile_file: Path, command: RunCommand) -> None:
    arguments = ["plan", profile_file, "--planner", "dreamddp", "--period", "3"]
    search = command(*arguments, "--json").result["search"]
    assert set(search) == {"nodes", "complete_solutions", "seconds", "complete"}
    assert search["complete"] is True
    assert search["nodes"] > search["complete_solutions"] >= 1
    text = f"{search['nodes']} nodes, {search['complete_solutions']} complete solutions; complete."
    assert text in command(*arguments).out


def test_a_search_that_is_cut_off_says_so(tmp_path: Path, command: RunCommand) -> None:
    profile = tmp_path / "profile.json"
    Profile(
        [Layer(f"l{i}", backward_seconds=2, forward_seconds=1, transfer_seconds=3) for i in range(4)]
    ).save(profile)
    arguments = ["plan", profile, "--planner", "dreamddp", "--period", "2"]
    whole = command(*arguments, "--json").result
    assert (whole["search"]["nodes"], whole["search"]["complete_solutions"]) == (6, 2)
    for limit in (["--max-nodes", "1"], ["--max-seconds", "0s"]):
        cut_off = command(*arguments, *limit, "--json").result
        assert cut_off["search"]["complete"] is False
        assert cut_off["search"]["complete_solutions"] == 1
        assert cut_off["iteration_seconds"] == pytest.approx(whole["iteration_seconds"] + 1)
    assert "cut off" in command(*arguments, "--max-nodes", "1").out


def test_bubbles_are_filled_in_the_order_of_drift(tmp_path: Path, command: RunCommand) -> None:
    # Last reads at 12, 10, 8 and 6 s, the step at 12 s: 6..9 and 9..12 for l3 and l2, or 10..12 for l1.
    profile, output = tmp_path / "profile.json", tmp_path / "plan.json"
    Profile(
        [
            Layer(f"l{i}", backward_seconds=2, forward_seconds=1, transfer_seconds=seconds, num_bytes=8)
            for i, seconds in enumerate((3, 2, 3, 3))
        ]
    ).save(profile)
    arguments = ["plan", profile, "--planner", "local-sgd", "--period", "2", "-o", output, "--json"]
    bare = command(*arguments).result
    for drift, layers in ([], [3, 2]), (["--drift", "l1,l3"], [3, 1]):
        filled = command(*arguments, "--fill-bubbles", *drift).result
        assert filled["iteration_seconds"] == pytest.approx(bare["iteration_seconds"], rel=1e-9)
        assert filled["bytes_per_iteration"] > bare["bytes_per_iteration"]
        ops = Plan.load(output).ops
        assert [op.segments[0].layer for op in ops[:-1]] == layers * 2
    for bad in (["--drift", "l1"], ["--fill-bubbles", "--drift", "l1,l9"]):
        outcome = command(*arguments, *bad)
        assert outcome.status == 2
        assert "--drift" in outcome.err


def test_brute_force_names_its_substitute(tmp_path: Path, command: RunCommand) -> None:
    profile = tmp_path / "profile.json"
    Profile([Layer(f"l{i}", transfer_seconds=1) for i in range(21)]).save(profile)
    outcome = command("plan", profile, "--planner", "brute-force", "--period", "2")
    assert outcome.status == 2
    assert "sequential" in outcome.err


def test_ctrl_c_ends_a_long_search() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs may ignore it
    # C(99, 39) partitions: it would not end by itself.
    layers = [
        Layer(str(i), forward_seconds=1, backward_seconds=2, num_bytes=4, transfer_seconds=1)
        for i in range(60)
    ]
    everything = SearchOptions(
        max_nodes=10**15, at_least_one=False, optimal_hiding=False, delayed_overflow=False
    )

    def search_until_the_signal() -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        make_plan("dreamddp", Profile(layers), Link(), period=40, search=everything)

    try:
        with pytest.raises(KeyboardInterrupt):
            search_until_the_signal()
    finally:
        signal.signal(signal.SIGINT, before)


def test_fused_plans_have_until_the_next_forward(
    profile_file: Path, tmp_path: Path, command: RunCommand
) -> None:
    output = tmp_path / "plan.json"
    for planner in ("local-sgd", "equal-count", "dreamddp", "balanced"):
        arguments = ["plan", profile_file, "--planner", planner, "--period", "2", "--json"]
        fused = command(*arguments, "--fused", "-o", output).result
        plan = Plan.load(output)
        assert plan.update is Update.fused
        validate_plan(plan, Profile.load(profile_file))
        assert command("simulate", profile_file, output, "--json").result["gap"] == fused["gap"]
        assert fused["iteration_seconds"] <= command(*arguments).result["iteration_seconds"]
        assert fused["iteration_seconds"] >= fused["bound_seconds"] * (1 - 1e-9)


@pytest.mark.parametrize("planner", ["wfbp", "sequential"])
def test_planners_that_cannot_fuse_say_which_can(
    planner: str, profile_file: Path, command: RunCommand
) -> None:
    outcome = command("plan", profile_file, "--planner", planner, "--period", "2", "--fused")
    assert outcome.status == 2
    assert f"got '{planner}'; expected one of local-sgd, equal-count, dreamddp, balanced" in outcome.err
