"""Whatever plan is valid, training with it equals the algorithm computed in one process, bit for bit."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from dreamddp import DreamDDP, Event, EventKind, Op, OpMode, Plan, Profile, Quantity, Segment
from dreamddp._core import op_mode, validate_plan
from tests.distributed.models import batch_for, loss_of
from tests.distributed.ranks import run_ranks
from tests.distributed.test_engine_reference import State, build, found_profile, reference

NUM_PLANS = 15
ITERATIONS = 11


def random_op(source: random.Random, segments: list[Segment], iteration: int) -> Op:
    """In a window of a random kind that may be valid for the segments."""
    first = min(segment.layer for segment in segments)
    after_step = Event(iteration, EventKind.after_step)
    before_step = EventKind.before_step
    after_backward = Event(iteration, EventKind.after_backward, first)
    kind = source.choice(["gradients", "backward", "backward", "forward", "forward", "held", "carried"])
    if kind in ("gradients", "backward"):
        quantity = Quantity.gradients if kind == "gradients" else Quantity.parameters
        return Op(segments, launch=after_backward, deadline=Event(iteration, before_step), quantity=quantity)
    if kind == "forward":
        return Op(segments, launch=after_step, deadline=Event(iteration + 1, EventKind.before_forward, first))
    steps = 0 if kind == "held" else source.randint(1, 2)
    return Op(segments, launch=after_step, deadline=Event(iteration + 1 + steps, before_step))


def random_plan(source: random.Random, profile: Profile) -> Plan | None:
    """A plan in which every coordinate is averaged once; None where it is not valid."""
    period = source.randint(1, 4)
    pieces: list[Segment] = []
    for index, layer in enumerate(profile.layers):
        if layer.num_bytes:
            cuts = sorted(source.random() for _ in range(source.choice([0, 0, 1, 2])))
            bounds = [0.0, *cuts, 1.0]
            pieces += [Segment(index, *pair) for pair in itertools.pairwise(bounds)]
    source.shuffle(pieces)
    ops: list[Op] = []
    while pieces:
        segments = [pieces.pop() for _ in range(min(len(pieces), source.randint(1, 3)))]
        ops.append(random_op(source, segments, source.randrange(period)))
    rank_of = {EventKind.after_forward: 0, EventKind.after_backward: 1, EventKind.after_step: 2}

    def place(op: Op) -> tuple[int, int, int]:
        layer = op.launch.layer if op.launch.kind is EventKind.after_backward else 0
        return op.launch.iteration, rank_of[op.launch.kind], -(layer or 0)

    try:
        plan = Plan(
            planner="random",
            period=period,
            layers=[layer.name for layer in profile.layers],
            ops=sorted(ops, key=place),
        )
        validate_plan(plan, profile)
    except ValueError:
        return None
    return plan


def random_plans(name: str, profile: Profile) -> list[Plan]:
    source = random.Random(f"plans for {name}")
    found: list[Plan] = []
    while len(found) < NUM_PLANS:
        plan = random_plan(source, profile)
        if plan is not None:
            found.append(plan)
    return found


def train_all(rank: int, name: str, plans: list[str]) -> list[State]:
    states = []
    for text in plans:
        model, optimizer = build(name)
        sync = DreamDDP(model, optimizer, plan=Plan.from_json(text))
        for iteration in range(ITERATIONS):
            loss_of(name, model, batch_for(name, rank, iteration)).backward()
            optimizer.step()
            optimizer.zero_grad()
        sync._engine.finish()
        states.append({key: value.clone() for key, value in model.state_dict().items()})
        sync.detach()
    return states


@pytest.mark.parametrize("name", ["mlp", "attention", "tied-embedding", "untied-embedding"])
def test_random_plans_equal_the_reference(name: str) -> None:
    profile = Profile.from_json(run_ranks(found_profile, 2, name)[0])
    plans = random_plans(name, profile)
    kinds = {(op.quantity, op_mode(op, profile)) for plan in plans for op in plan.ops}
    assert kinds >= {(Quantity.parameters, mode) for mode in OpMode.__members__.values()}
    assert (Quantity.gradients, OpMode.in_place) in kinds
    results = run_ranks(train_all, 2, name, [plan.to_json() for plan in plans])
    for index, plan in enumerate(plans):
        for rank, wanted in enumerate(reference(name, plan, profile, 2, ITERATIONS)):
            for key, value in wanted.items():
                message = f"{key} on rank {rank} with {plan.to_json()}"
                assert torch.equal(results[rank][index][key], value), message
