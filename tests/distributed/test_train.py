"""`dreamddp train` and `dreamddp profile` as people start them: real runs of a tiny model."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dreamddp import EventKind, Plan, Profile
from dreamddp.training.record import of_kind, read_record

# Each run starts several interpreters that import torch: slow where many share few cores.
TIMEOUT_SECONDS = 280
pytestmark = pytest.mark.timeout(300)

TINY = ["--model", "mlp", "--steps", "6", "--period", "2", "--batch-size", "2", "--bandwidth", "100MB/s"]
ROW_KEYS = {
    "planner",
    "iteration_seconds",
    "predicted_seconds",
    "compute_seconds",
    "exposed_seconds",
    "bytes_per_iteration",
    "final_loss",
    "rank_spread",
    "speedup",
    "loss_at_equal_steps",
    "loss_at_equal_time",
}
MLP_BYTES = 4 * (8 * 64 + 64 + 64 * 64 + 64 + 64 * 256 + 256)


def dreamddp(*arguments: str, folder: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dreamddp", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
        **settings,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("train")
    ended = dreamddp("train", *TINY, "--output", "out", "--json", folder=folder)
    assert ended.returncode == 0, ended.stderr
    return folder / "out", json.loads(ended.stdout)


def test_json_has_a_row_for_every_planner(run: tuple[Path, dict[str, Any]]) -> None:
    _, result = run
    assert result["output"] == "out"
    assert [row["planner"] for row in result["rows"]] == ["ddp", "local-sgd", "balanced"]
    for row in result["rows"]:
        assert set(row) >= ROW_KEYS
        assert row["rank_spread"] == 0.0
        assert row["iteration_seconds"] == pytest.approx(row["compute_seconds"] + row["exposed_seconds"])
    assert [row["bytes_per_iteration"] for row in result["rows"]] == [MLP_BYTES, MLP_BYTES / 2, MLP_BYTES / 2]


def test_all_planners_start_from_the_same_weights_and_batches(run: tuple[Path, dict[str, Any]]) -> None:
    output, _ = run
    steps = of_kind(read_record(output / "record.jsonl"), "step")
    assert len({step["loss"] for step in of_kind(steps, "step", step=0)}) == 1
    last = {step["planner"]: step["loss"] for step in of_kind(steps, "step", step=5)}
    assert last["ddp"] != last["local-sgd"]
    # What `balanced` plans depends on the measured times: on a fast machine it may be what `local-sgd` plans.
    local_sgd, balanced = (averaged_elements(output, planner) for planner in ("local-sgd", "balanced"))
    assert (last["local-sgd"] == last["balanced"]) == (local_sgd == balanced)


def averaged_elements(output: Path, planner: str) -> set[tuple[int, bool, int, int]]:
    """Which elements of which layer are averaged in which iteration, before or after its step."""
    layers = Profile.load(output / "profile.json").layers
    elements = set()
    for op in Plan.load(output / f"plan-{planner}.json").ops:
        for segment in op.segments:
            size = (layers[segment.layer].num_bytes or 0) // 4
            end = size if segment.end >= 1 else int(segment.end * size)
            for element in range(int(segment.begin * size), end):
                after_step = op.launch.kind is EventKind.after_step
                elements.add((op.launch.iteration, after_step, segment.layer, element))
    return elements


def test_record_has_every_kind(run: tuple[Path, dict[str, Any]]) -> None:
    output, result = run
    records = read_record(output / "record.jsonl")
    counts = Counter(record["kind"] for record in records)
    assert counts.pop("span") > 0
    assert counts == {"run": 1, "profile": 1, "link": 1, "plan": 3, "step": 18, "row": 3}
    assert [{"kind": "row", **row} for row in result["rows"]] == of_kind(records, "row")
    spans = of_kind(records, "span")
    for planner in ("ddp", "local-sgd", "balanced"):
        of_planner = of_kind(spans, "span", planner=planner)
        assert {span["source"] for span in of_planner} == {"run", "simulation"}
        kinds = {(span["span"], span["rank"]) for span in of_kind(of_planner, "span", source="run")}
        assert kinds >= {(kind, rank) for kind in ("forward", "backward", "step", "link") for rank in (0, 1)}
    assert all(0.0 <= span["begin_seconds"] <= span["end_seconds"] for span in spans)


def test_folder_holds_profile_plans_trace_and_report(run: tuple[Path, dict[str, Any]]) -> None:
    output, _ = run
    profile = Profile.load(output / "profile.json")
    assert sum(layer.num_bytes or 0 for layer in profile.layers) == MLP_BYTES
    for planner in ("ddp", "local-sgd", "balanced"):
        assert Plan.load(output / f"plan-{planner}.json").planner == planner
    events = json.loads((output / "trace.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert names == {f"{p}: rank {r}" for p in ("ddp", "local-sgd", "balanced") for r in (0, 1)}
    assert "DreamDDP (balanced)" in (output / "report.html").read_text(encoding="utf-8")


def test_report_can_be_written_again(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    output, _ = run
    ended = dreamddp("report", str(output), "-o", "again.html", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "again.html").read_bytes() == (output / "report.html").read_bytes()


def test_policies_are_trained_with_too(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(
        '{"0": {"policy": "fixed-period", "period": 3}, "*": {"policy": "combined", "most_staleness": 1}}'
    )
    flags = ["--planners", "balanced", "--policies", "rules.json", "--output", "out", "--json"]
    ended = dreamddp("train", *TINY, *flags, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    balanced, policy = json.loads(ended.stdout)["rows"]
    assert (balanced["planner"], policy["planner"], policy["rank_spread"]) == ("balanced", "policy", 0)
    decided = of_kind(read_record(tmp_path / "out" / "record.jsonl"), "decisions", planner="policy")
    due = [[layer["layer"] for layer in record["layers"] if layer["is_due"]] for record in decided]
    assert [record["iteration"] for record in decided] == [1, 2, 3, 4, 5]  # reads are watched in the first
    assert [("0" in names) for names in due] == [False, True, False, False, True]
    sizes = {"0": 4 * (8 * 64 + 64), "2": 4 * (64 * 64 + 64), "4": 4 * (64 * 256 + 256)}
    sent = sum(sizes[name] for names in due for name in names) / len(due)
    assert policy["bytes_per_iteration"] == pytest.approx(sent)
    assert (tmp_path / "out" / "policies.json").exists()
    assert "What policies had averaged" in (tmp_path / "out" / "report.html").read_text()


def test_folder_with_a_run_is_not_written_over(run: tuple[Path, dict[str, Any]]) -> None:
    output, _ = run
    before = (output / "record.jsonl").read_bytes()
    ended = dreamddp("train", *TINY, "--output", "out", folder=output.parent)
    assert ended.returncode == 2
    assert "--output: got out; expected a new or empty folder" in ended.stderr
    assert (output / "record.jsonl").read_bytes() == before


def test_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = dreamddp("train", *TINY, "--output", "file/out", folder=tmp_path)
    assert ended.returncode == 2
    assert "--output: got file/out (not a directory); expected a folder that can be written" in ended.stderr
    assert ended.stdout == ""


def test_full_disk_is_found_before_training(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    ended = dreamddp("train", *TINY, "--output", "out", folder=tmp_path, preexec_fn=limit)
    assert ended.returncode == 2
    assert re.search(
        r"--output: got out \(.+\); expected a folder that can be written, with 16 MiB", ended.stderr
    )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "flags",
    [
        ["--steps", "0"],
        ["--workers", "1"],
        ["--bandwidth", "0"],
        ["--planners", "none"],
        ["--data", "gone"],
        ["--policies", "gone"],
    ],
)
def test_bad_flag_is_one_line_that_names_it(flags: list[str], tmp_path: Path) -> None:
    ended = dreamddp("train", "--model", "mlp", *flags, folder=tmp_path)
    assert ended.returncode == 2
    assert f"{flags[0]}: got" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_killed_rank_ends_the_run_with_its_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dreamddp", "train", *TINY, "--steps", "1000000", "--output", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if b"step 1 of" in line:
                break
        os.kill(ranks_of(run.pid)[-1], signal.SIGKILL)
        # All ranks share this pipe: it ends when the last of them has.
        message = run.stderr.read().decode()
        assert run.wait() == 1
    assert "dreamddp: rank 1 was killed by SIGKILL" in message
    assert "rank 1 was killed by SIGKILL" in (tmp_path / "out" / "failure.txt").read_text()


def ranks_of(process_id: int) -> list[int]:
    """The processes that multiprocessing spawned, in the order of their start."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    return [int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


def torchrun(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "dreamddp"]
    return subprocess.run(
        [sys.executable, *launcher, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


def test_torchrun_uses_the_real_link_and_rank_0_alone_speaks(tmp_path: Path) -> None:
    flags = ["--model", "mlp", "--steps", "4", "--period", "2", "--planners", "ddp,balanced"]
    ended = torchrun("train", *flags, "--output", "out", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert [row["rank_spread"] for row in result["rows"]] == [0.0, 0.0]
    (link,) = of_kind(read_record(tmp_path / "out" / "record.jsonl"), "link")
    assert (link["emulated"], link["workers"]) == (False, 2)
    assert link["bandwidth_bytes_per_second"] > 0


def test_profile_of_two_ranks_at_once(tmp_path: Path) -> None:
    flags = ["--model", "mlp", "--workers", "2", "--iterations", "5", "-o", "profile.json", "--json"]
    ended = dreamddp("profile", *flags, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["num_bytes"], result["workers"]) == (MLP_BYTES, 2)
    assert result["backward_seconds"] > 0
    assert len(Profile.load(tmp_path / "profile.json").layers) == result["layers"]
