"""An output never overwrites an input, however it is spelled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dreamddp.cli import BAD_INPUT, DONE, main
from dreamddp.training.record import RECORD_NAME

PROFILE = {
    "format": "dreamddp-profile/1",
    "time_unit": "ms",
    "layers": [{"name": "a", "forward": 1, "backward": 2, "num_bytes": 8, "transfer": 1}],
}


def spellings(path: Path) -> list[str]:
    link = path.with_name("link-to-it")
    link.symlink_to(path)
    hard = path.with_name("hard-link-to-it")
    hard.hardlink_to(path)
    return [str(path), f"{path.parent}/./{path.name}", str(link), str(hard)]


@pytest.mark.parametrize("flag", ["plan -o", "compare --html"])
def test_an_output_that_is_the_profile_is_refused(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, option = flag.split()
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(PROFILE))
    for spelling in spellings(profile):
        assert main([command, str(profile), option, spelling]) == BAD_INPUT
        assert "another file than the input" in capsys.readouterr().err
    assert json.loads(profile.read_text()) == PROFILE


def test_other_outputs_that_are_inputs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, plan = tmp_path / "profile.json", tmp_path / "plan.json"
    profile.write_text(json.dumps(PROFILE))
    assert main(["plan", str(profile), "-o", str(plan)]) == DONE
    record = tmp_path / RECORD_NAME
    record.write_text("kept\n")
    before = plan.read_text()
    for arguments in (
        ["simulate", str(profile), str(plan), "--trace", str(plan)],
        ["report", str(tmp_path), "-o", str(record)],
    ):
        assert main(arguments) == BAD_INPUT
        assert "another file than the input" in capsys.readouterr().err
    assert plan.read_text() == before
    assert record.read_text() == "kept\n"


def test_an_output_may_replace_an_older_output(tmp_path: Path) -> None:
    profile, plan = tmp_path / "profile.json", tmp_path / "plan.json"
    profile.write_text(json.dumps(PROFILE))
    assert [main(["plan", str(profile), "-o", str(plan)]) for _ in range(2)] == [DONE, DONE]
