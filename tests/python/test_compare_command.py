"""`dreamddp compare`."""

import json
import re
from pathlib import Path

import pytest

from dreamddp import Link, Profile, choose_period, planners
from dreamddp._core import planner_can_fuse
from tests.python.conftest import RunCommand
from tests.python.test_simulate_command import KEYS


def test_every_combination_has_a_row(profile_file: Path, command: RunCommand) -> None:
    result = command(
        "compare",
        profile_file,
        "--planners",
        "ssgd,local-sgd,balanced",
        "--periods",
        "4,2",
        "--bandwidths",
        "1MB/s,10Mbit/s",
        "--json",
    ).result
    rows = [(row["planner"], row["period"], row["bandwidth_bytes_per_second"]) for row in result["rows"]]
    expected = [
        (planner, period, bandwidth)
        for bandwidth in (1e6, 1.25e6)
        for planner, period in [
            ("ssgd", 1),
            ("local-sgd", 2),
            ("local-sgd", 4),
            ("balanced", 2),
            ("balanced", 4),
        ]
    ]
    assert rows == expected
    assert all(set(row) == KEYS | {"bandwidth_bytes_per_second", "speedup"} for row in result["rows"])
    assert [line["bandwidth_bytes_per_second"] for line in result["advice"]] == [1e6, 1.25e6]


def test_auto_is_a_period_beside_numbers(profile_file: Path, command: RunCommand) -> None:
    chosen = choose_period(Profile.load(profile_file), Link())
    result = command(
        "compare", profile_file, "--planners", "sequential", "--periods", f"auto,{chosen + 1}", "--json"
    ).result
    assert [row["period"] for row in result["rows"]] == [chosen, chosen + 1]


def test_rows_are_those_of_plan(profile_file: Path, command: RunCommand) -> None:
    result = command("compare", profile_file, "--periods", "2", "--latency", "0.1ms", "--json").result
    for row in result["rows"]:
        planned = command(
            "plan",
            profile_file,
            "--planner",
            row["planner"],
            "--period",
            "2",
            "--latency",
            "0.1ms",
            "--json",
        ).result
        assert {key: planned[key] for key in KEYS} == {key: row[key] for key in KEYS}


def test_all_planners_but_exhaustive_search_by_default(profile_file: Path, command: RunCommand) -> None:
    result = command("compare", profile_file, "--periods", "2", "--json").result
    assert [row["planner"] for row in result["rows"]] == [
        name for name, _ in planners() if name != "brute-force"
    ]


def test_speedups_are_over_ddp_at_the_same_link(profile_file: Path, command: RunCommand) -> None:
    result = command("compare", profile_file, "--bandwidths", "1MB/s,100kB/s", "--json").result
    assert result["speedup_over"] == "ddp"
    for bandwidth in (1e6, 1e5):
        rows = [row for row in result["rows"] if row["bandwidth_bytes_per_second"] == bandwidth]
        ddp = next(row for row in rows if row["planner"] == "ddp")
        assert ddp["speedup"] == 1
        for row in rows:
            expected = ddp["iteration_seconds"] / row["iteration_seconds"]
            assert row["speedup"] == pytest.approx(expected, rel=1e-12)


def test_speedups_are_over_wfbp_where_sizes_are_unknown(tmp_path: Path, command: RunCommand) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(
        '{"format": "dreamddp-profile/1", "time_unit": "ms", "layers": ['
        '{"name": "a", "forward": 1, "backward": 2, "transfer": 4},'
        '{"name": "b", "forward": 1, "backward": 2, "transfer": 2}]}'
    )
    result = command("compare", profile, "--periods", "2", "--json").result
    assert result["speedup_over"] == "wfbp"
    assert "ddp" not in [row["planner"] for row in result["rows"]]
    assert all(row["bytes_per_iteration"] is None for row in result["rows"])


def test_advice_takes_the_shortest_period_that_is_fast(profile_file: Path, command: RunCommand) -> None:
    # At period 8 and at 16 the link is idle most of the time: the longer period would only add drift.
    arguments = ["--planners", "ssgd,balanced", "--periods", "8,16", "--json"]
    (advice,) = command("compare", profile_file, *arguments).result["advice"]
    assert (advice["planner"], advice["period"]) == ("balanced", 8)
    assert re.search(r"take balanced with period 8: .* times as fast as ddp", advice["text"])


def test_advice_stays_with_ddp_on_a_fast_link(profile_file: Path, command: RunCommand) -> None:
    (advice,) = command("compare", profile_file, "--bandwidth", "100GB/s", "--json").result["advice"]
    assert advice["planner"] == "ddp"
    assert "stay with ddp" in advice["text"]


def test_the_table_names_link_and_advice(profile_file: Path, command: RunCommand) -> None:
    outcome = command("compare", profile_file, "--periods", "8", "--bandwidths", "1MB/s,2MB/s")
    assert outcome.status == 0
    assert outcome.err == ""
    for bandwidth in ("1.0 MB/s", "2.0 MB/s"):
        assert f"profile.json over {bandwidth}\n" in outcome.out
        assert f"Over {bandwidth}: take balanced with period 8: " in outcome.out


def test_the_page_stands_alone(profile_file: Path, tmp_path: Path, command: RunCommand) -> None:
    page = tmp_path / "out.html"
    result = command(
        "compare", profile_file, "--bandwidths", "1MB/s,10MB/s", "--periods", "2,4", "--html", page, "--json"
    ).result
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
    assert text.count("plotly.js v") == 1
    for heading in (
        "Iteration time over the period",
        "Iteration time over the bandwidth",
        "Timelines over 1",
        "Numbers",
    ):
        assert f"<h2>{heading}" in text
    for line in result["advice"]:
        assert line["text"] in text


def test_names_are_escaped_in_the_page(profile_file: Path, tmp_path: Path, command: RunCommand) -> None:
    odd = tmp_path / "a<b>&c.json"
    odd.write_text(profile_file.read_text())
    page = tmp_path / "out.html"
    assert command("compare", odd, "--periods", "2", "--html", page).status == 0
    assert "a&lt;b&gt;&amp;c.json" in page.read_text(encoding="utf-8")


def test_a_profile_whose_times_are_all_zero_has_a_table(tmp_path: Path, command: RunCommand) -> None:
    layers = [{"name": name, "forward": 0, "backward": 0, "transfer": 0, "num_bytes": 8} for name in "ab"]
    profile = {"format": "dreamddp-profile/1", "time_unit": "ms", "step": 0, "layers": layers}
    path = tmp_path / "zero.json"
    path.write_text(json.dumps(profile), encoding="utf-8")
    rows = command("compare", path, "--periods", "2", "--json").result["rows"]
    assert {row["iteration_seconds"] for row in rows} == {0.0}
    assert {row["speedup"] for row in rows} == {1.0}
    assert "stay with ddp" in command("compare", path, "--periods", "2").out


def test_fused_rows_are_those_of_plan(profile_file: Path, command: RunCommand) -> None:
    result = command("compare", profile_file, "--periods", "2", "--fused", "--json").result
    rows = {row["planner"]: row["iteration_seconds"] for row in result["rows"]}
    assert list(rows) == [
        "ssgd",
        "wfbp",
        "ddp",
        "asc-wfbp",
        "local-sgd",
        "equal-count",
        "dreamddp",
        "balanced",
    ]
    for planner, seconds in rows.items():
        fused = ["--fused"] if planner_can_fuse(planner) else []
        planned = command(
            "plan", profile_file, "--planner", planner, "--period", "2", *fused, "--json"
        ).result
        assert planned["iteration_seconds"] == seconds
    outcome = command("compare", profile_file, "--planners", "sequential", "--periods", "2", "--fused")
    assert outcome.status == 2
