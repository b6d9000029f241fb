"""Kills, stops or delays a rank at a random moment, again and again, and checks how each run ends.

    python -m benchmarks.fault_runs [--runs 100] [--at-once 4] [--seed 1]

Each run is a training of 2 or 3 ranks over Gloo or over the emulated link. At a random moment one rank is
killed (SIGKILL), stopped (SIGSTOP), or stopped for less than the timeout. The promise: killed or stopped,
every living rank raises a SyncError that names the missing rank, within the timeout and a margin, and its
process ends; delayed, the run is completed with equal ranks. Runs that end in another way are counted and
shown; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.result_file import write_result
from dreamddp import DreamDDP, Link, SyncError
from dreamddp.emulated_link import emulated_link

TIMEOUT_SECONDS = 3.0
# On top of the timeout: to ask who is alive, and for processes that share few cores.
MARGIN_SECONDS = 6.0
STEPS = 60
STEP_SECONDS = 0.02


@dataclass(frozen=True)
class Fault:
    number: int
    kind: str
    workers: int
    victim: int
    delay_seconds: float
    emulated: bool


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    faults = [make_fault(number, draw) for number in range(options.runs)]
    with ThreadPoolExecutor(options.at_once) as pool:
        outcomes = list(pool.map(run_until_it_starts, faults))
    counts = Counter(
        f"{fault.kind}: {'as promised' if not wrong else 'wrong'}"
        for fault, wrong in zip(faults, outcomes, strict=True)
    )
    wrong = {str(fault): text for fault, text in zip(faults, outcomes, strict=True) if text}
    for kind, count in sorted(counts.items()):
        print(f"{kind}: {count}")
    for fault, text in wrong.items():
        print(f"{fault}: {text}")
    result = {"runs": options.runs, "timeout_seconds": TIMEOUT_SECONDS, "counts": counts, "wrong": wrong}
    print(f"written to {write_result('fault_runs', result)}")
    return 1 if wrong else 0


def make_fault(number: int, draw: random.Random) -> Fault:
    workers = draw.choice([2, 3])
    return Fault(
        number=number,
        kind=draw.choice(["killed", "stopped", "delayed"]),
        workers=workers,
        victim=draw.randrange(workers),
        delay_seconds=draw.uniform(0.0, STEPS * STEP_SECONDS * 0.7),
        emulated=draw.random() < 0.5,
    )


NOT_STARTED = "a rank has ended before its training began"


def run_until_it_starts(fault: Fault) -> str:
    """Ranks may be too slow to attach within the timeout while many others run; no fault has come then."""
    outcome = NOT_STARTED
    for _ in range(5):
        if outcome == NOT_STARTED:
            outcome = run(fault)
    return outcome


def run(fault: Fault) -> str:
    """What went wrong; empty where all ended as promised."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed"])
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        ranks = []
        for rank in range(fault.workers):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=train, args=(rank, fault, folder, sender), daemon=True)
            process.start()
            sender.close()
            ranks.append((process, receiver))
        try:
            for _, receiver in ranks:
                if not receiver.poll(120):
                    return "a rank did not start"
                try:
                    receiver.recv()
                except EOFError:
                    return NOT_STARTED
            time.sleep(fault.delay_seconds)
            victim = ranks[fault.victim][0]
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL if fault.kind == "killed" else signal.SIGSTOP)
            if fault.kind == "delayed":
                time.sleep(TIMEOUT_SECONDS / 3)
                os.kill(victim.pid, signal.SIGCONT)
            return judge(fault, ranks)
        finally:
            for process, receiver in ranks:
                process.kill()
                process.join()
                receiver.close()


def judge(fault: Fault, ranks: list[tuple[Any, Any]]) -> str:
    limit = TIMEOUT_SECONDS + MARGIN_SECONDS
    if fault.kind == "delayed":
        limit += 2 * STEPS * STEP_SECONDS + MARGIN_SECONDS
    deadline = time.monotonic() + limit
    states = set()
    for rank, (process, receiver) in enumerate(ranks):
        if fault.kind != "delayed" and rank == fault.victim:
            continue
        if not receiver.poll(max(0.0, deadline - time.monotonic())):
            return f"rank {rank} has not ended within {limit:g} s"
        try:
            kind, text = receiver.recv()
        except EOFError:
            return f"rank {rank} has died"
        expected = "finished" if fault.kind == "delayed" else "SyncError"
        if kind != expected:
            return f"rank {rank}: {kind}: {text}"
        if kind == "finished":
            states.add(text)
        elif not names(text, fault):
            return f"rank {rank} does not name rank {fault.victim}: {text}"
        process.join(max(0.0, deadline - time.monotonic()))
        if process.exitcode != 0:
            return f"rank {rank}: exit code {process.exitcode} (None: its process has not ended)"
    return "ranks are not equal" if len(states) > 1 else ""


def names(text: str, fault: Fault) -> bool:
    """Whether the error names the rank that is missing, and no other one."""
    named = set(re.findall(r"rank (\d) (?:does not answer|has given no sign of life)", text))
    return named == {str(fault.victim)} or (not named and f"rank {fault.victim} " in text.partition(":")[2])


def train(rank: int, fault: Fault, folder: str, sender: Connection[Any, Any]) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = emulated_link("100MB/s", "1ms") if fault.emulated else "gloo"
    store = (Path(folder) / "store").as_uri()
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=fault.workers)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    link = Link(bandwidth_bytes_per_second=1e8, latency_seconds=1e-3, workers=fault.workers)
    sync = DreamDDP(model, optimizer, period=3, link=link, timeout=TIMEOUT_SECONDS, profile_iterations=6)

    def step() -> None:
        model(torch.randn(4, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(STEP_SECONDS)

    for _ in range(20):  # the plan has been made, and only averages communicate
        step()
    sender.send("ready")
    try:
        for _ in range(STEPS):
            step()
        sync.finish()
    except SyncError as error:
        sender.send(("SyncError", str(error)))
    except BaseException as error:
        sender.send((type(error).__name__, str(error)))
    else:
        weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
        sender.send(("finished", hashlib.sha256(weights).hexdigest()))


if __name__ == "__main__":
    sys.exit(main())
