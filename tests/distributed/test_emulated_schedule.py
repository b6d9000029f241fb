"""When collectives over an emulated link start and finish: on the link's own clock, never on the wall's."""

import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dreamddp.emulated_link import emulated_link, link_statistics
from tests.distributed.emulated_ranks import Booked, booked, emulated_ranks, expected_schedule
from tests.distributed.ranks import run_ranks


def many_collectives(
    rank: int, folder: Path, in_flight: int, jitter: float
) -> tuple[list[Booked], list[int], tuple[int, int, float]]:
    with emulated_ranks(rank, 2, folder, latency=1e-3, in_flight=in_flight, jitter=jitter):
        works = []
        for round_ in range(4):
            works.append(dist.all_reduce(torch.ones(250_000 * (round_ + 1)), async_op=True))
            works.append(dist.broadcast(torch.ones(1000), src=0, async_op=True))
            works.append(dist.all_gather([torch.ones(500)] * 2, torch.ones(500), async_op=True))
            works.append(dist.barrier(async_op=True))
        returned = []
        for work in works:
            work.wait()
            returned.append(time.monotonic_ns())
        statistics = link_statistics()
        return booked(), returned, (statistics.ops, statistics.num_bytes, statistics.busy_seconds)


@pytest.mark.parametrize(("in_flight", "jitter"), [(1, 0.0), (2, 0.0), (3, 0.002)])
def test_collectives_take_the_time_of_the_formula(tmp_path: Path, in_flight: int, jitter: float) -> None:
    (ops, returned, statistics), (ops_of_peer, returned_at_peer, statistics_of_peer) = run_ranks(
        many_collectives, 2, tmp_path, in_flight, jitter, init=False
    )
    # At one byte per nanosecond; for two workers, a ring sends the tensor once.
    kinds = [
        (kind, n, transfer)
        for round_ in range(4)
        for kind, n, transfer in [
            ("all_reduce", 1_000_000 * (round_ + 1), 1_000_000 * (round_ + 1)),
            ("broadcast", 4000, 4000),
            ("all_gather", 4000, 2000),
            ("barrier", 0, 0),
        ]
    ]
    assert [(op.collective, op.num_bytes, op.transfer) for op in ops] == kinds
    assert [(op.start, op.finish) for op in ops] == expected_schedule(ops, 1_000_000, in_flight)
    assert all(0 <= op.jitter <= jitter * 1e9 for op in ops)
    assert len({op.jitter for op in ops}) == (len(ops) if jitter else 1)

    assert ops_of_peer == ops
    for op, here, there in zip(ops, returned, returned_at_peer, strict=True):
        assert min(here, there) >= op.finish

    assert statistics == statistics_of_peer
    assert statistics[:2] == (16, sum(op.num_bytes for op in ops))
    assert statistics[2] == pytest.approx(sum(op.transfer for op in ops) * 1e-9)


def launches_late_on_one(rank: int, folder: Path) -> tuple[int, Booked]:
    with emulated_ranks(rank, 2, folder):
        store = dist.distributed_c10d._get_default_store()
        launched = time.monotonic_ns()
        if rank == 0:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            store.set("rank 0 has launched", "1")
        else:
            store.wait(["rank 0 has launched"])
            launched = time.monotonic_ns()
            work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        return launched, booked()[0]


def test_ready_is_when_the_last_rank_has_launched(tmp_path: Path) -> None:
    (early, op), (late, op_of_peer) = run_ranks(launches_late_on_one, 2, tmp_path, init=False)
    assert op == op_of_peer
    assert op.ready >= late > early


def uses_a_link_of_some_ranks_only(rank: int, folder: Path) -> list[Booked]:
    with emulated_ranks(rank, 3, folder, bandwidth=4e6):
        pair = dist.new_group([0, 1])
        before = len(booked())
        if rank < 2:
            pair_work = dist.all_reduce(torch.ones(500_000), group=pair, async_op=True)
            while len(booked()) == before:  # until both have launched
                time.sleep(0.001)
        dist.all_reduce(torch.ones(1))
        if rank < 2:
            pair_work.wait()
        return booked()[before:]


def test_collective_of_all_waits_for_the_links_of_some(tmp_path: Path) -> None:
    (pair, of_all), ops_of_peer, (of_all_at_third,) = run_ranks(
        uses_a_link_of_some_ranks_only, 3, tmp_path, init=False
    )
    assert ops_of_peer == [pair, of_all]
    assert pair.workers == 2
    assert of_all == of_all_at_third
    assert of_all.start >= pair.finish


def link_values() -> list[str]:
    errors = []
    for values in [
        {"bandwidth": 0.0},
        {"bandwidth": "fast"},
        {"latency": -1.0},
        {"latency": "1"},
        {"jitter": -1.0},
        {"in_flight": 0},
    ]:
        with pytest.raises(ValueError) as error:
            emulated_link(**values)  # type: ignore[arg-type]
        errors.append(str(error.value))
    return errors


def test_bad_values_are_named() -> None:
    for text, field in zip(
        link_values(), ["bandwidth", "bandwidth", "latency", "latency", "jitter", "in_flight"], strict=True
    ):
        assert text.startswith(f"{field}: got ")


def values_with_units(rank: int) -> list[Booked]:
    group = dist.new_group(backend=emulated_link("8Mbit/s", "0.25ms", jitter="0s"))
    dist.all_reduce(torch.ones(500), group=group)
    return booked()


def test_values_with_units() -> None:
    ((op,), (op_of_peer,)) = run_ranks(values_with_units, 2)
    assert op == op_of_peer
    assert op.transfer == 2_000_000  # 2000 bytes at 1 MB/s
    assert op.finish - op.start == 2_250_000


def asks_without_link(rank: int) -> None:
    with pytest.raises(RuntimeError, match=r"call emulated_link\(\) first"):
        link_statistics()


def test_statistics_need_a_link() -> None:
    run_ranks(asks_without_link, 1, init=False)
