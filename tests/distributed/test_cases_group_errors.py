"""Ranks that cannot join the others: the message says what was missing and which variable to check."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
import torch

from dreamddp import DreamDDP, SyncError
from dreamddp.training.launcher import RankContext
from dreamddp.training.link_setup import joined
from tests.distributed.models import mlp
from tests.distributed.ranks import RanksFailed, run_ranks
from tests.distributed.test_cases_failures import sync_error_of


def attach_bad_timeout(rank: int) -> str:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError) as error:
        DreamDDP(model, optimizer, timeout=-1.0 if rank == 1 else 5.0)
    return str(error.value)


def test_a_bad_timeout_on_one_rank_is_an_error_on_all() -> None:
    text, own_text = run_ranks(attach_bad_timeout, 2, timeout=30)
    assert "rank 1 failed while attaching DreamDDP" in text
    assert "timeout: got -1" in text
    assert "timeout: got -1" in own_text


def attach_with_wrong_interface(rank: int) -> str:
    os.environ["GLOO_SOCKET_IFNAME"] = "no-such-interface"
    model = mlp()
    return sync_error_of(lambda: DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1), timeout=5))[0]


def test_e6_a_wrong_interface_name_is_told_with_its_variable() -> None:
    for text in run_ranks(attach_with_wrong_interface, 2, timeout=30):
        assert "creating DreamDDP's process group" in text
        assert "Check GLOO_SOCKET_IFNAME, now 'no-such-interface'" in text


def raise_while_building(rank: int) -> str:
    if rank == 1:
        raise KeyError("no such layer")
    model = mlp()
    return sync_error_of(lambda: DreamDDP(model, torch.optim.SGD(model.parameters(), lr=0.1), timeout=3))[0]


def report_of_rank_0(rank: int, path: str) -> None:
    Path(path).write_text(raise_while_building(rank))


def test_e3_a_peer_that_raises_before_it_attaches_is_told(tmp_path: Path) -> None:
    path = tmp_path / "text"
    with pytest.raises(RanksFailed) as caught:
        run_ranks(report_of_rank_0, 2, str(path), timeout=40)
    assert list(caught.value.failures) == [1]
    assert "no such layer" in caught.value.failures[1]
    assert re.match(
        r"rank 0: creating DreamDDP's process group failed after \d\S* s, as a peer is missing",
        path.read_text(),
    )


def join_at(rank: int, address: str, port: int) -> str:
    os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    with pytest.raises(SyncError) as error, joined(RankContext(rank, 2, None, lambda message: None), None, 3):
        pass
    return str(error.value)


def join_where_it_cannot(rank: int, port: int, file: str) -> tuple[str, str, str]:
    in_use, unknown = join_at(0, "127.0.0.1", port), join_at(1, "no-such-host.invalid", port)
    os.environ["GLOO_SOCKET_IFNAME"] = "no-such-interface"
    context = RankContext(0, 1, file, lambda message: None)
    with pytest.raises(SyncError) as error, joined(context, None, 3):
        pass
    return in_use, unknown, str(error.value)


def test_e6_the_variable_at_fault_is_named_where_ranks_cannot_join(tmp_path: Path) -> None:
    file = f"file://{tmp_path}/store"
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ((in_use, unknown, interface),) = run_ranks(
            join_where_it_cannot, 1, port, file, init=False, timeout=60
        )
    assert f"Check MASTER_PORT, now '{port}': another process of this machine uses that port" in in_use
    assert "Check MASTER_ADDR, now 'no-such-host.invalid'" in unknown
    assert "Check GLOO_SOCKET_IFNAME, now 'no-such-interface'" in interface
