"""Other Python threads of a rank go on, and may ask it, while it waits for an average."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed as dist

from dreamddp import DreamDDP, Event, EventKind, Op, Plan, Quantity, Segment
from tests.distributed.models import batch_for, loss_of, mlp
from tests.distributed.plans import fused_backward_plan, whole_backward_plan
from tests.distributed.ranks import run_ranks

LAYERS = ["0", "2", "4"]
UPDATE = "the update of a layer"
AN_EVENT = "a launch behind means that are still to be written"
QUESTIONS = 10
# So long that the check for interrupts, about ten times a second, comes between the questions.
SECONDS_BETWEEN = 0.05


def one_op(launch: Event, deadline: Event, quantity: Quantity = Quantity.parameters) -> Plan:
    op = Op([Segment(layer) for layer in range(3)], launch=launch, deadline=deadline, quantity=quantity)
    return Plan(planner="by hand", period=1, layers=LAYERS, ops=[op])


PLANS = {
    "the end of a backward": one_op(
        Event(0, EventKind.after_backward, 0), Event(0, EventKind.before_step), Quantity.gradients
    ),
    UPDATE: fused_backward_plan(LAYERS, period=1),
    "the step": whole_backward_plan(LAYERS),
    AN_EVENT: one_op(Event(0, EventKind.after_step), Event(1, EventKind.before_step)),
}


def ask_while_it_waits(rank: int, place: str) -> list[int]:
    """Rank 1 launches its op only when rank 0, which waits for it, has answered its other thread."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = PLANS[place]
    sync = DreamDDP(model, optimizer, plan=plan, fused_update=place == UPDATE, timeout=60.0)
    store = dist.distributed_c10d._get_default_store()
    is_about_to_wait = threading.Event()
    answers = []

    def ask() -> None:
        is_about_to_wait.wait()
        for _ in range(QUESTIONS):
            time.sleep(SECONDS_BETWEEN)
            answers.append(sync.iteration)
            sync.stats()
            sync._engine.spans()
        store.set("answered", "")

    asker = threading.Thread(target=ask, daemon=True)
    if rank == 0:
        asker.start()
    waiting_iteration = 2 if place == AN_EVENT else 1
    for iteration in range(3):  # the first backward is collective
        if iteration == waiting_iteration:
            is_about_to_wait.set()
        loss = loss_of("mlp", model, batch_for("mlp", rank, iteration))
        if rank == 1 and iteration == 1 and place != AN_EVENT:
            store.wait(["answered"])
        loss.backward()
        if rank == 1 and iteration == 0 and place == AN_EVENT:
            store.wait(["answered"])
        if place != AN_EVENT or iteration == 0:
            optimizer.step()  # else its deadline comes with the next forward, and so does the next launch
        optimizer.zero_grad()
    if rank == 0:
        asker.join()
    sync.finish()
    return answers


@pytest.mark.parametrize("place", PLANS)
def test_a_thread_asks_while_the_rank_waits(place: str) -> None:
    answers, _ = run_ranks(ask_while_it_waits, 2, place)
    assert len(answers) == QUESTIONS
