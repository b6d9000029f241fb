"""Ways to keep the ranks of a training together, behind one interface: DreamDDP's and those of others.

The packages of the others are optional. Each is used as its documentation says, with the same period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dreamddp import DreamDDP

LIGHTHOUSE_PORT = 29610


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which rank this is. The default process group exists."""

    rank: int
    workers: int
    period: int
    addresses: tuple[str, ...]
    """Of the ranks, on the link."""
    timeout_seconds: float


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What a training loop calls."""

    model: nn.Module
    optimizer: Any
    """It has `step()` and `zero_grad()`."""
    after_step: Callable[[], object] = lambda: None
    begin_counting: Callable[[], object] = lambda: None
    """The iterations that count begin."""
    counted: Callable[[], dict[str, Any]] = dict
    """What the library itself says of them."""
    finish: Callable[[], object] = lambda: None


Attach = Callable[[nn.Module, torch.optim.Optimizer, Place], AbstractContextManager[Loop]]


@dataclass(frozen=True)
class Method:
    """One way, with the package that it needs beside PyTorch and DreamDDP."""

    title: str
    attach: Attach
    sends: Literal["nothing", "every iteration", "every period"] = "every period"
    """When the whole model, or its gradients, crosses the link."""
    packages: tuple[str, ...] = ()

    def versions(self) -> dict[str, str | None]:
        """Of the packages; None where one is not installed."""
        return {package: _version(package) for package in self.packages}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@contextmanager
def alone(model: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> Iterator[Loop]:
    yield Loop(model=model, optimizer=optimizer)


@contextmanager
def pytorch_ddp(model: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> Iterator[Loop]:
    yield Loop(model=DistributedDataParallel(model), optimizer=optimizer)


def dreamddp_with(planner: str) -> Attach:
    """Attached as in the README: it measures layers and link itself, during the first iterations."""

    @contextmanager
    def attach(model: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> Iterator[Loop]:
        sync = DreamDDP(model, optimizer, period=place.period, planner=planner, timeout=place.timeout_seconds)

        def counted() -> dict[str, Any]:
            stats = sync.stats()
            link = sync.link
            assert link is not None
            return {
                "predicted_seconds": stats.predicted_seconds,
                "compute_seconds": stats.compute_seconds,
                "exposed_seconds": stats.exposed_seconds,
                "ops_per_iteration": stats.ops_per_iteration,
                "averaged_bytes_per_iteration": stats.bytes_per_iteration,
                "link": {
                    "bandwidth_bytes_per_second": link.bandwidth_bytes_per_second,
                    "latency_seconds": link.latency_seconds,
                },
            }

        yield Loop(
            model=model,
            optimizer=optimizer,
            begin_counting=lambda: sync.stats(reset=True),
            counted=counted,
            finish=sync.finish,
        )
        sync.detach()

    return attach


@contextmanager
def accelerate_local_sgd(model: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> Iterator[Loop]:
    from accelerate import Accelerator
    from accelerate.local_sgd import LocalSGD

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == place.workers
    prepared, its_optimizer = accelerator.prepare(model, optimizer)
    with LocalSGD(accelerator=accelerator, model=prepared, local_sgd_steps=place.period) as local_sgd:
        yield Loop(model=prepared, optimizer=its_optimizer, after_step=local_sgd.step)


@contextmanager
def torchft_local_sgd(model: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> Iterator[Loop]:
    from torchft.local_sgd import LocalSGD

    with _torchft_manager(place) as manager, LocalSGD(manager, model, optimizer, sync_every=place.period):
        yield _torchft_loop(model, optimizer, manager)


@contextmanager
def torchft_diloco(model: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> Iterator[Loop]:
    """One fragment, with the outer optimizer of DiLoCo's authors."""
    from torchft.local_sgd import DiLoCo

    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    with (
        _torchft_manager(place) as manager,
        DiLoCo(manager, [model], optimizer, outer, sync_every=place.period),
    ):
        yield _torchft_loop(model, optimizer, manager)


def _torchft_loop(model: nn.Module, optimizer: torch.optim.Optimizer, manager: Any) -> Loop:
    return Loop(model=model, optimizer=optimizer, counted=lambda: {"syncs_committed": manager.current_step()})


@contextmanager
def _torchft_manager(place: Place) -> Iterator[Any]:
    """A replica group of its own for each rank, and the lighthouse in the process of rank 0."""
    from torchft.coordination import LighthouseServer
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    timeout = timedelta(seconds=place.timeout_seconds)
    address = place.addresses[place.rank]
    lighthouse_address = f"{place.addresses[0]}:{LIGHTHOUSE_PORT}"
    lighthouse = None
    if place.rank == 0:
        lighthouse = LighthouseServer(bind=lighthouse_address, min_replicas=place.workers)
    dist.barrier()
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=lambda _: None,
        state_dict=dict,
        min_replica_size=place.workers,
        use_async_quorum=False,
        timeout=timeout,
        quorum_timeout=timeout,
        rank=0,
        world_size=1,
        store_addr=address,
        store_port=store.port,
        lighthouse_addr=f"http://{lighthouse_address}",
        replica_id=f"replica_{place.rank}",
        hostname=address,
        init_sync=False,  # all ranks have built the same model
    )
    yield manager
    dist.barrier()
    manager.shutdown(wait=False)
    dist.barrier()
    if lighthouse is not None:
        lighthouse.shutdown()


METHODS = {
    "alone": Method("no communication", alone, sends="nothing"),
    "ddp": Method("PyTorch DDP", pytorch_ddp, sends="every iteration"),
    "dreamddp-local-sgd": Method("DreamDDP local-sgd", dreamddp_with("local-sgd")),
    "accelerate-local-sgd": Method("accelerate LocalSGD", accelerate_local_sgd, packages=("accelerate",)),
    "torchft-local-sgd": Method("torchft LocalSGD", torchft_local_sgd, packages=("torchft",)),
    "torchft-diloco": Method("torchft DiLoCo", torchft_diloco, packages=("torchft",)),
    "dreamddp-balanced": Method("DreamDDP balanced", dreamddp_with("balanced")),
}
"""In the order of the table. The first is the compute, the second what the others are compared with."""
