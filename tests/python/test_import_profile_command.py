"""`dreamddp import-profile` on small files of the public kind."""

from pathlib import Path

import pytest

from dreamddp import Profile
from tests.python.conftest import RunCommand


@pytest.fixture
def public_run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    (run / "backward.json").write_text(
        '{"embed": 0.002, "lora_A.default": NaN, "relu": 0.001, "head": 0.004}'
    )
    (run / "sync.json").write_text('{"embed": 0.04, "lora_A": 0.01, "head": 0.02}')
    return run


def test_times_and_warnings(public_run: Path, tmp_path: Path, command: RunCommand) -> None:
    output = tmp_path / "profile.json"
    outcome = command(
        "import-profile", public_run, "-o", output, "--forward-ratio", "0.25", "--nan-as-zero", "--json"
    )
    profile = Profile.load(output)
    assert [layer.forward_seconds for layer in profile.layers] == [0.0005, 0, 0.00025, 0.001]
    assert [layer.backward_seconds for layer in profile.layers] == [0.002, 0, 0.001, 0.004]
    assert [layer.transfer_seconds for layer in profile.layers] == [0.04, 0.01, 0, 0.02]
    assert outcome.result["layers"] == 4
    assert outcome.result["compute_seconds"] == pytest.approx(8.75e-3, rel=1e-12)
    assert outcome.result["transfer_seconds"] == pytest.approx(70e-3, rel=1e-12)
    assert outcome.result["warnings"]
    assert len(outcome.err.splitlines()) == len(outcome.result["warnings"])
    assert "lora_A" in outcome.err


def test_bare_nan_is_bad_input_by_default(public_run: Path, tmp_path: Path, command: RunCommand) -> None:
    output = tmp_path / "profile.json"
    outcome = command("import-profile", public_run, "-o", output)
    assert outcome.status == 2
    assert "lora_A.default" in outcome.err
    assert not output.exists()


def test_the_imported_profile_can_be_compared(public_run: Path, tmp_path: Path, command: RunCommand) -> None:
    output = tmp_path / "profile.json"
    imported = command("import-profile", public_run, "-o", output, "--nan-as-zero")
    assert imported.status == 0
    assert "4 layers" in imported.out
    assert command("compare", output, "--periods", "2").status == 0


def test_sizes_are_estimated_from_link_times(public_run: Path, tmp_path: Path, command: RunCommand) -> None:
    output = tmp_path / "profile.json"
    arguments = ("--assume-bandwidth", "10MB/s", "--workers", "4", "--nan-as-zero")
    outcome = command("import-profile", public_run, "-o", output, *arguments, "--json")
    # n = c * bandwidth * K / (2(K-1)): 40 ms at 10 MB/s over 4 workers is 266,667 bytes.
    profile = Profile.load(output)
    assert [layer.num_bytes for layer in profile.layers] == [266_667, 66_667, 0, 133_333]
    assert profile.sizes_are_estimated
    assert Profile.from_json(profile.to_json()) == profile
    assert outcome.result["num_bytes"] == 466_667
    assert any("estimated" in warning for warning in outcome.result["warnings"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--assume-bandwidth", "0"), "--assume-bandwidth"),
        (("--assume-bandwidth", "1MB/s", "--workers", "1"), "workers"),
    ],
)
def test_bad_estimates_are_rejected(
    public_run: Path, tmp_path: Path, command: RunCommand, arguments: tuple[str, ...], text: str
) -> None:
    outcome = command("import-profile", public_run, "-o", tmp_path / "p.json", "--nan-as-zero", *arguments)
    assert outcome.status == 2
    assert text in outcome.err
