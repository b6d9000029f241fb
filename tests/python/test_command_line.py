"""Exit codes, streams, and commands whose work is done elsewhere."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dreamddp
from dreamddp import cli
from tests.python.conftest import RunCommand


def start(*argv: object, **options: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "dreamddp", *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_the_module_runs_as_a_program(profile_file: Path) -> None:
    process = start("plan", profile_file, "--period", "2", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["period"] == 2
    assert err == b""


def test_planning_does_not_import_torch(profile_file: Path) -> None:
    code = (
        "import sys; from dreamddp.cli import main; "
        f"status = main(['compare', {str(profile_file)!r}, '--periods', '2', '--json']); "
        "assert status == 0 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)


PRINTING = [["compare", "--periods", "2"], ["plan", "--period", "2", "--json"], ["plan", "--help"]]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", PRINTING)
@pytest.mark.parametrize(
    ("redirection", "reason"),
    [
        ("a pipe without a reader", "standard output: Broken pipe"),
        (">/dev/full", "standard output: No space left on device"),
        (">&-", "standard output is closed"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(
    profile_file: Path, argv: list[str], redirection: str, reason: str, unbuffered: str
) -> None:
    if redirection == "a pipe without a reader":
        reading, writing = os.pipe()
        os.close(reading)
        shell = f'exec "$@" >&{writing}'
        descriptors: tuple[int, ...] = (writing,)
    else:
        shell, descriptors, writing = f'exec "$@" {redirection}', (), -1
    name, *flags = argv
    done = subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, "-m", "dreamddp", name, profile_file, *flags],
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        timeout=60,
        check=False,
    )
    if writing >= 0:
        os.close(writing)
    assert done.stderr.decode() == f"dreamddp: {reason}\n"
    assert done.returncode == 1


def test_ctrl_c_is_130(profile_file: Path, monkeypatch: pytest.MonkeyPatch, command: RunCommand) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dreamddp.commands.plan.make_plan_and_report", interrupted)
    outcome = command("plan", profile_file, "--period", "2")
    assert outcome.status == 130
    assert outcome.err == "dreamddp: interrupted\n"


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], *([name, "--help"] for name in ("plan", "compare"))]
)
def test_help_and_version(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(argv)
    assert exit_info.value.code == 0
    assert capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in cli.COMMANDS)


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands in for the module of `dreamddp train`: `run` does what the test sets."""
    module = ModuleType("dreamddp.commands.train")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--steps", type=int, default=3)

    def print_table(result: dict[str, object]) -> None:
        print(f"table of {result}")

    vars(module).update(
        add_arguments=add_arguments, run=lambda args: {"steps": args.steps}, print_table=print_table
    )
    monkeypatch.setitem(sys.modules, "dreamddp.commands.train", module)
    return module


def test_a_result_is_printed_as_json_or_as_a_table(train: ModuleType, command: RunCommand) -> None:
    assert command("train", "--steps", 5, "--json").result == {"steps": 5}
    assert command("train").out == "table of {'steps': 3}\n"
    assert command("train", "--steps", "many").status == 2


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (dreamddp.SyncError("rank 1 is late"), 1, "rank 1 is late"),
        (RuntimeError("out of\nmemory"), 1, "out of memory"),
        (ValueError("--lr: got -1"), 2, "--lr: got -1"),
        (
            FileNotFoundError(2, "No such file or directory", "data.txt"),
            2,
            "data.txt: No such file or directory",
        ),
        (ModuleNotFoundError("No module named 'peft'", name="peft"), 1, "peft is not installed"),
    ],
)
def test_errors_of_a_run(
    error: Exception, status: int, message: str, train: ModuleType, command: RunCommand
) -> None:
    def fail(args: argparse.Namespace) -> None:
        raise error

    vars(train)["run"] = fail
    outcome = command("train", "--json")
    assert outcome.status == status
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1
    assert message in outcome.err


def test_report_writes_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: RunCommand
) -> None:
    module = ModuleType("dreamddp.report")

    def write_report(run_folder: Path, output: Path) -> None:
        output.write_text(f"report of {run_folder.name}")

    vars(module)["write_report"] = write_report
    monkeypatch.setitem(sys.modules, "dreamddp.report", module)
    monkeypatch.delitem(sys.modules, "dreamddp.commands.report", raising=False)
    output = tmp_path / "page.html"
    assert command("report", tmp_path / "run-1", "-o", output, "--json").result["output"] == str(output)
    assert output.read_text() == "report of run-1"


def test_a_run_folder_may_have_brackets_in_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    from dreamddp.commands.train import print_table

    print_table({"rows": [], "output": "runs[/x]"})
    assert "report: runs[/x]/report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--bandwidth", "-1MB/s", "got '-1MB/s'; expected a rate above 0"),
        ("--latency", "-.5ms", "got '-.5ms'; expected a time of at least 0"),
        ("--period", "-3", "got '-3'; expected a whole number from 1"),
        ("--period", "9" * 5000, "...'; expected a whole number from 1"),
        ("--workers", "9" * 5000, "...'; expected a whole number up to"),
    ],
)
def test_numbers_out_of_range_are_named_with_their_range(
    profile_file: Path, flag: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", str(profile_file), flag, value]) == 2
    error = capsys.readouterr().err
    assert flag in error
    assert expected in error
    assert len(error) < 400
