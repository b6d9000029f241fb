"""Text and batches: the same path and (seed, rank, step) always give the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dreamddp.training import text as text_module
from dreamddp.training.data import HELD_OUT_WINDOWS, make_batches
from dreamddp.training.text import min_text_bytes, read_text

TEXT = bytes(index * 7 % 251 for index in range(4000))


def test_default_text_is_python_source() -> None:
    text = read_text(None, min_bytes=1 << 20)
    assert text == read_text(None, min_bytes=1)
    assert b"def __init__(self" in text
    assert len(text) <= text_module.MAX_TEXT_BYTES


def test_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"second")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "z.txt").write_bytes(b"first,")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"never")
    assert read_text(tmp_path, min_bytes=1) == b"first,second"
    assert read_text(tmp_path / "b.txt", min_bytes=1) == b"second"


def test_reading_stops_at_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "MAX_TEXT_BYTES", 8)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 5)
    assert read_text(tmp_path, min_bytes=1) == b"aaaaabbb"


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--data: got .* with 0 bytes; expected at least 10 bytes of text"):
        read_text(tmp_path, min_bytes=10)


def test_batch_depends_on_seed_rank_and_step_alone() -> None:
    batches = make_batches(TEXT, window_bytes=9, batch_size=4, seed=3)
    again = make_batches(TEXT, window_bytes=9, batch_size=4, seed=3)
    other_seed = make_batches(TEXT, window_bytes=9, batch_size=4, seed=4)
    batch = batches.draw(1, 5)
    assert batch.shape == (4, 9)
    assert batch.dtype == torch.int64
    assert torch.equal(batch, again.draw(1, 5))
    for other in (batches.draw(0, 5), batches.draw(1, 6), other_seed.draw(1, 5)):
        assert not torch.equal(batch, other)


def test_windows_are_slices_of_the_training_text_only() -> None:
    batches = make_batches(TEXT, window_bytes=9, batch_size=64, seed=0)
    training = TEXT[: len(TEXT) - len(TEXT) // 16]
    for window in batches.draw(0, 0).tolist():
        assert bytes(window) in training


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ranks_share_out_the_held_out_windows(workers: int) -> None:
    batches = make_batches(TEXT, window_bytes=9, batch_size=5, seed=0)
    shares = [torch.cat(batches.held_out_batches(rank, workers)) for rank in range(workers)]
    alone = torch.cat(batches.held_out_batches(0, 1))
    assert sum(len(share) for share in shares) == HELD_OUT_WINDOWS
    assert sorted(map(tuple, torch.cat(shares).tolist())) == sorted(map(tuple, alone.tolist()))


def test_shortest_text_that_is_allowed_works() -> None:
    shortest = TEXT[: min_text_bytes(9)]
    batches = make_batches(shortest, window_bytes=9, batch_size=2, seed=0)
    assert batches.draw(0, 0).shape == (2, 9)
    assert torch.cat(batches.held_out_batches(0, 1)).shape == (HELD_OUT_WINDOWS, 9)
    with pytest.raises(ValueError, match="text: got"):
        make_batches(shortest[:-1], window_bytes=9, batch_size=2, seed=0)
