"""What runs over an emulated link: every collective, DistributedDataParallel, further groups."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dreamddp.emulated_link import emulated_link
from tests.distributed.emulated_ranks import Booked, booked, emulated_ranks
from tests.distributed.ranks import run_ranks


def every_collective(rank: int, folder: Path) -> tuple[dict[str, Any], list[Booked]]:
    size = 3
    found: dict[str, Any] = {}
    mine = torch.arange(2.0) + 10 * rank
    with emulated_ranks(rank, size, folder):
        found["all_reduce"] = mine.clone()
        dist.all_reduce(found["all_reduce"])
        found["all_reduce max"] = mine.clone()
        dist.all_reduce(found["all_reduce max"], dist.ReduceOp.MAX)
        found["coalesced"] = [mine.clone(), mine + 1]
        with pytest.warns(FutureWarning):
            dist.all_reduce_coalesced(found["coalesced"])
        found["sparse"] = torch.sparse_coo_tensor(
            torch.tensor([[rank]]), torch.tensor([1.0]), (size,), check_invariants=True
        )
        dist.all_reduce(found["sparse"])
        found["sparse"] = found["sparse"].to_dense()
        found["broadcast"] = mine.clone()
        dist.broadcast(found["broadcast"], src=1)
        found["reduce"] = mine.clone()
        dist.reduce(found["reduce"], dst=2)
        found["all_gather"] = [torch.empty(2) for _ in range(size)]
        dist.all_gather(found["all_gather"], mine)
        found["all_gather_into_tensor"] = torch.empty(2 * size)
        dist.all_gather_single(found["all_gather_into_tensor"], mine)
        found["gather"] = [torch.empty(2) for _ in range(size)]
        dist.gather(mine, found["gather"] if rank == 0 else None, dst=0)
        found["scatter"] = torch.empty(2)
        dist.scatter(
            found["scatter"], [torch.full((2,), float(i)) for i in range(size)] if rank == 0 else None
        )
        found["reduce_scatter"] = torch.empty(2)
        dist.reduce_scatter(found["reduce_scatter"], [mine + 100 * i for i in range(size)])
        found["reduce_scatter_tensor"] = torch.empty(1, 2)
        dist.reduce_scatter_single(found["reduce_scatter_tensor"], torch.arange(6.0).view(3, 2) + rank)
        found["all_to_all"] = [torch.empty(1) for _ in range(size)]
        dist.all_to_all(found["all_to_all"], [torch.tensor([10.0 * rank + i]) for i in range(size)])
        found["all_to_all_single"] = torch.empty(size)
        dist.all_to_all_single(found["all_to_all_single"], torch.arange(3.0) + 10 * rank)
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, {"rank": rank})
        found["all_gather_object"] = objects
        objects = [f"from {rank}"]
        dist.broadcast_object_list(objects, src=2)
        found["broadcast_object_list"] = objects
        dist.barrier()
        found["recv"] = torch.empty(2)
        if rank == 0:
            dist.recv(found["recv"], src=1)
        elif rank == 1:
            dist.send(mine, dst=0)
        future = dist.all_reduce(mine.clone(), async_op=True).get_future()
        found["future"] = future.then(lambda done: done.value()[0] / size).wait()
        work = dist.all_reduce(mine.clone(), async_op=True)
        work.wait()
        assert work.is_completed()
        assert work.is_success()
        found["result"] = work.result()[0]
        return found, booked()


def test_every_collective_gives_what_it_should(tmp_path: Path) -> None:
    results = run_ranks(every_collective, 3, tmp_path, init=False)
    mine = [torch.arange(2.0) + 10 * rank for rank in range(3)]
    total = torch.tensor([30.0, 33.0])
    for rank, (found, ops) in enumerate(results):
        expected = {
            "all_reduce": total,
            "all_reduce max": mine[2],
            "coalesced": [total, total + 3],
            "sparse": torch.ones(3),
            "broadcast": mine[1],
            "all_gather": mine,
            "all_gather_into_tensor": torch.cat(mine),
            "scatter": torch.full((2,), float(rank)),
            "reduce_scatter": total + 300 * rank,
            "reduce_scatter_tensor": (torch.arange(6.0).view(3, 2) * 3 + 3)[rank : rank + 1],
            "all_to_all": [torch.tensor([10.0 * i + rank]) for i in range(3)],
            "all_to_all_single": torch.tensor([10.0 * i + rank for i in range(3)]),
            "future": total / 3,
            "result": total,
        }
        if rank == 0:
            expected |= {"gather": mine, "recv": mine[1]}
        if rank == 2:
            expected["reduce"] = total
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=0, msg=f"{name} on rank {rank}")
        assert found["all_gather_object"] == [{"rank": i} for i in range(3)]
        assert found["broadcast_object_list"] == ["from 2"]
        assert ops == results[0][1]
    sizes = {(op.collective, op.num_bytes) for op in results[0][1]}
    assert sizes >= {
        ("all_reduce", 8),
        ("all_reduce", 16),  # coalesced
        ("all_reduce", 12),  # sparse: an index of 8 bytes and a value of 4
        ("broadcast", 8),
        ("reduce", 8),
        ("all_gather", 24),
        ("gather", 24),
        ("scatter", 24),
        ("reduce_scatter", 24),
        ("all_to_all", 12),
        ("barrier", 0),
    }


def train_with_ddp(model: nn.Module, rank: int, group: dist.ProcessGroup | None = None) -> list[torch.Tensor]:
    ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    random = torch.Generator().manual_seed(rank)
    for _ in range(5):
        inputs = torch.randn(16, 8, generator=random)
        ddp(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [value.detach().clone() for value in model.state_dict().values()]


def mlp(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 4))


def ddp_over_gloo(rank: int) -> list[torch.Tensor]:
    return train_with_ddp(mlp(seed=rank), rank)


def ddp_over_emulated_link(rank: int, folder: Path) -> tuple[list[torch.Tensor], list[Booked]]:
    with emulated_ranks(rank, 2, folder, latency=1e-3, in_flight=2, jitter=1e-3):
        return train_with_ddp(mlp(seed=rank), rank), booked()


def test_ddp_over_the_link_equals_ddp_over_gloo(tmp_path: Path) -> None:
    plain = run_ranks(ddp_over_gloo, 2)
    emulated = run_ranks(ddp_over_emulated_link, 2, tmp_path, init=False)
    (_, ops), (_, ops_of_peer) = emulated
    assert ops == ops_of_peer
    assert Counter(op.collective for op in ops)["all_reduce"] >= 5 * 2  # several buckets per step
    for values, (values_over_link, _) in zip(plain, emulated, strict=True):
        for value, over_link in zip(values, values_over_link, strict=True):
            assert torch.equal(value, over_link)


def further_groups(rank: int, folder: Path) -> list[float]:
    with emulated_ranks(rank, 3, folder):
        outer = dist.new_group([0, 2])
        plain = dist.new_group(backend="gloo")
        sums = []
        for group in [outer, plain, None]:
            tensor = torch.tensor([2.0**rank])
            if group is not outer or rank != 1:
                dist.all_reduce(tensor, group=group)
            sums.append(tensor.item())
        dist.destroy_process_group(plain)
        dist.barrier(outer) if rank != 1 else None
        return sums


def test_further_groups(tmp_path: Path) -> None:
    assert run_ranks(further_groups, 3, tmp_path, init=False) == [
        [5.0, 7.0, 7.0],
        [2.0, 7.0, 7.0],
        [5.0, 7.0, 7.0],
    ]


def ddp_in_a_further_group(rank: int) -> list[torch.Tensor]:
    group = dist.new_group(backend=emulated_link(1e9, 1e-3))
    assert dist.get_backend(group) == "emulated"
    assert dist.get_backend() == "gloo"
    return train_with_ddp(mlp(seed=rank), rank, group)


def test_ddp_in_a_further_group_over_the_link() -> None:
    values = run_ranks(ddp_in_a_further_group, 2)
    plain = run_ranks(ddp_over_gloo, 2)
    assert all(torch.equal(a, b) for a, b in zip(values[0], plain[0], strict=True))


def interleaves_two_groups(rank: int, folder: Path) -> list[float]:
    with emulated_ranks(rank, 2, folder, in_flight=2):
        other = dist.new_group()
        tensors = [torch.full((1000,), float(rank + i)) for i in range(40)]
        works = [
            dist.all_reduce(tensor, group=other if i % 2 else None, async_op=True)
            for i, tensor in enumerate(tensors)
        ]
        for work in works:
            work.wait()
        assert len(booked()) == 40
        return [tensor[-1].item() for tensor in tensors]


def test_two_groups_share_the_link(tmp_path: Path) -> None:
    assert (
        run_ranks(interleaves_two_groups, 2, tmp_path, init=False) == [[2.0 * i + 1 for i in range(40)]] * 2
    )
