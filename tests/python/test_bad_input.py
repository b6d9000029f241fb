"""Whatever is wrong with the input: exit code 2, one readable line on standard error, nothing else."""

import json
from pathlib import Path

import pytest

from tests.python.conftest import RunCommand

PROFILE = {
    "format": "dreamddp-profile/1",
    "time_unit": "ms",
    "layers": [
        {"name": "a", "forward": 1, "backward": 2, "transfer": 4, "num_bytes": 4000},
        {"name": "b", "forward": 1, "backward": 2, "transfer": 2, "num_bytes": 2000},
    ],
}


def with_layer_field(field: str, text: str) -> str:
    """The profile with that JSON text in the second layer."""
    value = json.loads(json.dumps(PROFILE))
    value["layers"][1][field] = "@"
    return json.dumps(value).replace('"@"', text)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")

    write("good.json", json.dumps(PROFILE))
    write("truncated.json", json.dumps(PROFILE)[:-20])
    write("empty.json", "")
    write("list.json", "[]")
    write("no-unit.json", json.dumps({k: v for k, v in PROFILE.items() if k != "time_unit"}))
    write("no-layers.json", json.dumps({**PROFILE, "layers": []}))
    write("future.json", json.dumps({**PROFILE, "format": "dreamddp-profile/2"}))
    (tmp_path / "latin.json").write_bytes(b'{"format": "caf\xe9"}')
    for name, text in {
        "nan": "NaN",
        "infinity": "Infinity",
        "negative": "-1",
        "null": "null",
        "string": '"12"',
        "huge": "1e400",
    }.items():
        write(f"{name}.json", with_layer_field("forward", text))
    write("negative-bytes.json", with_layer_field("num_bytes", "-5"))
    write("zero.json", with_layer_field("forward", "0"))
    write("no-transfer.json", with_layer_field("transfer", "4").replace(', "transfer": 4', ""))
    plan = {"format": "dreamddp-plan/1", "planner": "p", "period": 1, "layers": ["a", "b"], "ops": []}
    write("plan-without-ops.json", json.dumps(plan))
    write("plan-of-others.json", json.dumps({**plan, "layers": ["x", "y"]}))
    (tmp_path / "public").mkdir()
    write("public/backward.json", '{"a": 1}')
    write("public/sync.json", '{"b": 1}')
    (tmp_path / "half").mkdir()
    write("half/backward.json", '{"a": 1}')
    return tmp_path


CASES = [
    ("", "COMMAND"),
    ("plant", "plant"),
    ("--jsn", "COMMAND"),
    ("plan", "PROFILE"),
    ("plan missing.json", "missing.json: No such file"),
    ("plan .", "directory"),
    ("plan latin.json", "latin.json: not a UTF-8 text file"),
    ("plan truncated.json", "truncated.json: "),
    ("plan empty.json", "empty.json: "),
    ("plan list.json", "list.json: "),
    ("plan no-unit.json", "time_unit"),
    ("plan no-layers.json", "layers"),
    ("plan future.json", "dreamddp-profile/2"),
    ("plan nan.json", "'b'"),
    ("plan infinity.json", "'b'"),
    ("plan negative.json", "'b'"),
    ("plan null.json", "'b'"),
    ("plan string.json", "'b'"),
    ("plan huge.json", "huge.json: "),
    ("plan negative-bytes.json", "num_bytes"),
    ("plan no-transfer.json", "layers[0] 'a': transfer: got none"),
    ("plan good.json --planner fastest", "--planner: got 'fastest'; expected one of ssgd"),
    ("plan good.json --period 0", "--period: got '0'"),
    ("plan good.json --period -3", "--period"),
    ("plan good.json --period five", "--period: got 'five'"),
    ("plan good.json --period 2.5", "--period: got '2.5'"),
    ("plan good.json --period 99999999999999999999", "period"),
    ("plan good.json --staging 8MiBs", "--staging"),
    ("plan good.json --staging -1", "--staging"),
    ("plan good.json --max-delay -1", "max_delay"),
    ("plan good.json --max-delay 99999999999999999999", "--max-delay"),
    ("plan good.json --bandwidth 0MB/s", "--bandwidth"),
    ("plan good.json --bandwidth=-1MB/s", "--bandwidth"),
    ("plan good.json --bandwidth", "--bandwidth"),
    ("plan good.json --bandwidth 10", "--bandwidth"),
    ("plan good.json --bandwidth fast", "--bandwidth"),
    ("plan good.json --latency 3", "--latency"),
    ("plan good.json --workers 0", "workers"),
    ("plan good.json --workers two", "--workers"),
    ("plan good.json --workers 99999999999999999999", "--workers"),
    ("plan good.json --in-flight 0", "flight"),
    ("plan good.json --colour red", "--colour"),
    ("plan good.json -o no-folder/plan.json", "no-folder/plan.json: No such file"),
    ("plan good.json -o .", "directory"),
    ("simulate good.json", "PLAN"),
    ("simulate good.json missing.json", "missing.json: No such file"),
    ("simulate good.json good.json", "good.json: "),
    ("simulate good.json plan-without-ops.json", "a, b"),
    ("simulate good.json plan-of-others.json", "'x'"),
    ("compare good.json --planners balanced,,ssgd", "--planners"),
    ("compare good.json --planners slow", "--planners: got 'slow'"),
    ("compare good.json --periods 5;10", "--periods"),
    ("compare good.json --periods 5,0", "--periods: got '0'"),
    ("compare good.json --bandwidths 1MB/s,0MB/s", "--bandwidths"),
    ("compare good.json --bandwidths 1MB/s --bandwidth 1MB/s", "--bandwidth"),
    ("compare good.json --html no-folder/out.html", "no-folder/out.html: No such file"),
    (
        "plan good.json --drift a",
        "--drift: got 'a'; expected it only with --fill-bubbles. Add --fill-bubbles.",
    ),
    ("plan good.json --fill-bubbles --drift x", "--drift: got 'x'; expected names of layers"),
    (
        "report missing",
        "missing/record.jsonl: got no such file or directory; expected the record of a run. Give",
    ),
    ("report good.json", "good.json/record.jsonl: got not a directory; expected the record of a run. Give"),
    ("import-profile missing -o out.json", "missing/backward.json: No such file"),
    ("import-profile half -o out.json", "half/sync.json: No such file"),
    ("import-profile public -o out.json", "'b'"),
    ("import-profile public", "-o"),
    ("import-profile public -o out.json --forward-ratio -1", "forward"),
    ("import-profile public -o out.json --forward-ratio nan", "forward"),
]


@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize(("line", "expected"), CASES, ids=[line or "no command" for line, _ in CASES])
def test_bad_input(
    line: str,
    expected: str,
    json_flag: list[str],
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: RunCommand,
) -> None:
    monkeypatch.chdir(files)
    argv = line.split()
    outcome = command(*argv, *(json_flag if argv and not argv[0].startswith("-") else []))
    assert outcome.status == 2, outcome
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1
    assert outcome.err.startswith("dreamddp: ")
    assert "Traceback" not in outcome.err
    assert expected in outcome.err


def test_a_syntax_error_has_its_position(
    files: Path, monkeypatch: pytest.MonkeyPatch, command: RunCommand
) -> None:
    monkeypatch.chdir(files)
    assert any(word in command("plan", "truncated.json").err for word in ("line", "column", "byte"))


def test_zero_times_are_fine(files: Path, command: RunCommand) -> None:
    assert command("plan", files / "zero.json", "--period", "2").status == 0
