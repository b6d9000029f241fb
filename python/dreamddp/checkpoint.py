"""What a training needs to go on exactly where it was saved, beside model and optimizers.

A state is a flat dict with the same keys at any time, so that torch.distributed.checkpoint, which fills a
state in place, can load it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from dreamddp import agreement, fused_update, model_state, policy_training
from dreamddp._core import Link, Plan, Profile, reject
from dreamddp._runtime import Engine
from dreamddp.layers import ModelLayer
from dreamddp.loop_hooks import LoopHooks
from dreamddp.planning import Planning
from dreamddp.reads import AgreedReads, ReadOrder

if TYPE_CHECKING:
    from dreamddp._runtime import PendingOp

VERSION = 1
MAX_ITERATION = 1 << 62
MAY_BE_NONE = ("plan", "reads", "profile", "link")
FIELDS: dict[str, tuple[type, str]] = {
    "rank": (int, "a whole number of at least 0"),
    "ranks": (int, "a whole number of at least 0"),
    "iteration": (int, f"a whole number from 0 to {MAX_ITERATION}"),
    "is_measuring": (bool, "True or False"),
    **dict.fromkeys(("layers", "pending", "policies"), (str, "a text")),
    **dict.fromkeys(MAY_BE_NONE, (str, "a text or None")),
}
WHOLE = "Is the file complete? Load what DreamDDP.state_dict() returned."


@dataclass(frozen=True)
class SavedTraining:
    """A place in a training between two iterations, on one rank."""

    rank: int
    num_ranks: int
    layers: dict[str, int]
    """Bytes of each of the model's layers."""
    iteration: int
    plan: Plan | None
    """None before the first iteration; so are the reads."""
    reads: ReadOrder | None
    profile: Profile | None
    link: Link | None
    is_measuring: bool
    """Whether the plan is the one that is carried out while layers and link are being measured."""
    pending: Sequence[PendingOp]
    """Averages under way whose results may not be written yet."""
    policies: str
    """What policies go on from; empty where none decide."""

    def to_state(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "rank": self.rank,
            "ranks": self.num_ranks,
            "layers": json.dumps(self.layers),
            "iteration": self.iteration,
            "plan": None if self.plan is None else self.plan.to_json(),
            "reads": None if self.reads is None else _reads_to_json(self.reads),
            "profile": None if self.profile is None else self.profile.to_json(),
            "link": None if self.link is None else _link_to_json(self.link),
            "is_measuring": self.is_measuring,
            "pending": _to_text(self.pending),
            "policies": self.policies,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SavedTraining:
        """Raises ValueError where this is no state, or one of another version."""
        if not isinstance(state, Mapping):
            reject("state", f"{state!r:.60}", "the dict that DreamDDP.state_dict() returned", WHOLE)
        if state.get("version") != VERSION:
            reject(
                "version of the state",
                repr(state["version"]) if "version" in state else "none",
                str(VERSION),
                "Give what DreamDDP.state_dict() returned, saved by this version of the library.",
            )
        for key, (type_, allowed) in FIELDS.items():
            value = state.get(key)
            if type(value) is not type_ and not (value is None and key in MAY_BE_NONE):
                reject(f"state['{key}']", f"{value!r:.60}", allowed, WHOLE)
            if isinstance(value, int) and not 0 <= value <= MAX_ITERATION:
                reject(f"state['{key}']", value, allowed, WHOLE)
        return cls(
            rank=state["rank"],
            num_ranks=state["ranks"],
            layers=_decoded(state, "layers", json.loads),
            iteration=state["iteration"],
            plan=_decoded(state, "plan", Plan.from_json),
            reads=_decoded(state, "reads", _reads_from_json),
            profile=_decoded(state, "profile", Profile.from_json),
            link=_decoded(state, "link", lambda text: Link(**json.loads(text))),
            is_measuring=state["is_measuring"],
            pending=_decoded(state, "pending", _from_text),
            policies=state["policies"],
        )

    def check_fits(self, layers: Sequence[ModelLayer], rank: int, num_ranks: int, plan: Plan | None) -> None:
        """Raises ValueError for a state of another model, rank or number of ranks, and for another plan."""
        ours = {layer.name: layer.num_bytes for layer in layers}
        if self.layers != ours:
            differing = sorted({*self.layers.items()} ^ {*ours.items()})
            reject(
                "layers of the state",
                f"those of another model (layer '{differing[0][0]}' differs)",
                "the names and sizes of this model's layers",
                "Resume with the model that was saved.",
            )
        if (self.rank, self.num_ranks) != (rank, num_ranks):
            reject(
                "state",
                f"that of rank {self.rank} of {self.num_ranks}",
                f"the one that rank {rank} of {num_ranks} saved",
                "Between averages ranks differ: let every rank save and load a state of its own. To go on "
                "with another number of ranks, load averaged_state_dict() into the model and give "
                f"first_iteration={self.iteration}.",
            )
        if plan is not None and self.plan is not None and plan.to_json() != self.plan.to_json():
            reject(
                "plan",
                "another one than that of the state",
                "none, or the one that was carried out",
                "Leave out plan=, or do not load the state and give first_iteration instead.",
            )

    def shared(self) -> dict[str, Any]:
        """What must be equal on all ranks."""
        state = self.to_state()
        pending = [(op, iteration) for op, iteration, _, _ in self.pending]
        own = ("rank", "pending", "policies")
        return {key: state[key] for key in state if key not in own} | {
            "pending": pending,
            "policies": policy_training.shared_part(self.policies),
        }


def _decoded(state: Mapping[str, Any], key: str, decode: Callable[[str], Any]) -> Any:
    """Raises ValueError naming the key where its text cannot be read."""
    if state[key] is None:
        return None
    try:
        return decode(state[key])
    except (ValueError, KeyError, TypeError, IndexError, EOFError, RuntimeError, UnpicklingError) as error:
        reject(f"state['{key}']", f"{state[key]!r:.40} ({error!r:.80})", "what was saved", WHOLE)


def save(
    layers: Sequence[ModelLayer],
    engine: Engine,
    planning: Planning,
    reads: ReadOrder | None,
    group: dist.ProcessGroup,
) -> dict[str, Any]:
    """This rank's state. Waits for averages in place that are under way; does not communicate by itself.

    Raises:
        RuntimeError: inside an iteration.
    """
    if engine.awaits_step:
        raise RuntimeError(
            "DreamDDP.state_dict(): called between a backward and its step; expected after the step. Save "
            "behind optimizer.step(); where a loss scaler has skipped it, behind the next one."
        )
    return SavedTraining(
        rank=dist.get_rank(group),
        num_ranks=dist.get_world_size(group),
        layers={layer.name: layer.num_bytes for layer in layers},
        iteration=planning.first_iteration if planning.plan is None else engine.iteration,
        plan=planning.plan,
        reads=reads,
        profile=planning.profile,
        link=planning.link,
        is_measuring=planning.is_measuring,
        pending=engine.pending(),
        policies=planning.policy_state,
    ).to_state()


def load(
    state: Mapping[str, Any],
    layers: Sequence[ModelLayer],
    planning: Planning,
    hooks: LoopHooks,
    given_plan: Plan | None,
    group: dist.ProcessGroup,
) -> None:
    """Goes on from a state of this rank. Collective.

    Raises:
        ValueError: on all ranks, for a state that does not fit, and where those of the ranks do not belong
            together.
        RuntimeError: after the first forward.
    """
    if hooks.order is not None or hooks.is_watching:
        raise RuntimeError(
            "DreamDDP.load_state_dict(): the training has begun. Load before the first iteration; to go back "
            "within a training, detach() and attach again."
        )
    saved: SavedTraining | None = None

    def shared() -> dict[str, Any]:
        nonlocal saved
        saved = SavedTraining.from_state(state)
        saved.check_fits(layers, dist.get_rank(group), dist.get_world_size(group), given_plan)
        if saved.plan is not None:
            fused_update.check_plan(saved.plan, planning.is_fused, "state")
            planning.check_policies_of(saved.plan)
        return saved.shared()

    agreement.require_equal(
        agreement.on_all_ranks(shared, group, "loading a state of DreamDDP"),
        "the state",
        "Load states that all ranks saved in the same iteration.",
    )
    assert saved is not None
    if saved.plan is None or saved.reads is None:
        planning.first_iteration = saved.iteration
        return
    planning.resume(
        saved.plan,
        saved.iteration,
        saved.profile,
        saved.link,
        is_measuring=saved.is_measuring,
        policy_state=saved.policies,
    )
    hooks.resume(saved.reads, saved.plan, saved.pending)


def averaged_state(model: nn.Module, engine: Engine, group: dist.ProcessGroup) -> dict[str, Any]:
    """The model's state, in tensors of its own, with means over ranks. Collective; no average in place may
    be under way."""
    state: dict[str, Any] = model.state_dict()
    copies: dict[tuple[Any, ...], torch.Tensor] = {}
    averaged: dict[str, Any] = type(state)()
    for key, value in state.items():
        averaged[key] = value
        if isinstance(value, torch.Tensor):
            place = (value.data_ptr(), value.shape, value.stride(), value.dtype)  # tied tensors stay tied
            averaged[key] = copies.setdefault(place, value.detach().clone())
    model_state.average([], copies.values(), engine, group)
    return averaged


def _reads_to_json(reads: ReadOrder) -> str:
    layers = [
        {
            "name": layer.name,
            "last_read": layer.last_read if isinstance(layer.last_read, str) else list(layer.last_read),
            "readers": list(layer.readers),
            "last_reader": layer.last_reader,
            "is_repeated": layer.is_repeated,
        }
        for layer in reads.layers.values()
    ]
    return json.dumps({"layers": layers, "forward": list(reads.forward), "backward": list(reads.backward)})


def _reads_from_json(text: str) -> ReadOrder:
    content = json.loads(text)
    layers: dict[str, AgreedReads] = {}
    for layer in content["layers"]:
        last_read: Any = layer["last_read"]
        layers[layer["name"]] = AgreedReads(
            layer["name"],
            ("backward", last_read[1]) if isinstance(last_read, list) else last_read,
            tuple(layer["readers"]),
            layer["last_reader"],
            layer["is_repeated"],
        )
    return ReadOrder(layers, tuple(content["forward"]), tuple(content["backward"]))


def _link_to_json(link: Link) -> str:
    fields = ("bandwidth_bytes_per_second", "latency_seconds", "workers", "in_flight")
    return json.dumps({field: getattr(link, field) for field in fields})


def _to_text(pending: Sequence[PendingOp]) -> str:
    if not pending:
        return ""
    file = io.BytesIO()
    torch.save(list(pending), file)
    return base64.b64encode(file.getvalue()).decode("ascii")


def _from_text(text: str) -> list[PendingOp]:
    if not text:
        return []
    pending: list[PendingOp] = torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
    return pending
