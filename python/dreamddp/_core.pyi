"""Profiles, links, plans, planners and the simulator.

Times are seconds, sizes bytes, rates bytes per second. Everything is immutable; constructors validate and
raise ValueError.
"""

import enum
import os
from collections.abc import Sequence
from typing import NoReturn

__version__: str
built_for_torch: str
default_staging_bytes: int
longest_period: int
training_slack: float

class SyncError(RuntimeError): ...

def reject(field: str, value: object, allowed: str, remedy: str) -> NoReturn:
    """Raises ValueError with the text "<field>: got <value>; expected <allowed>. <remedy>"."""

def read_text_file(path: str | os.PathLike[str]) -> str: ...
def write_text_file(path: str | os.PathLike[str], text: str) -> None: ...
def parse_seconds(text: str, field: str) -> float: ...
def parse_num_bytes(text: str, field: str) -> int: ...
def parse_bytes_per_second(text: str, field: str) -> float: ...
def format_seconds(seconds: float) -> str: ...
def format_num_bytes(num_bytes: float) -> str: ...
def format_bytes_per_second(bytes_per_second: float) -> str: ...

class LastReadKind(enum.Enum):
    own_backward = 0
    forward = 1
    other_backward = 2

class LastRead:
    def __init__(self, kind: LastReadKind, layer: int = 0) -> None: ...
    @property
    def kind(self) -> LastReadKind: ...
    @property
    def layer(self) -> int: ...
    __hash__ = None  # type: ignore[assignment]

class Layer:
    def __init__(
        self,
        name: str,
        *,
        forward_seconds: float = 0.0,
        backward_seconds: float = 0.0,
        num_bytes: int | None = None,
        transfer_seconds: float | None = None,
        last_read: LastRead = ...,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def forward_seconds(self) -> float: ...
    @property
    def backward_seconds(self) -> float: ...
    @property
    def num_bytes(self) -> int | None: ...
    @property
    def transfer_seconds(self) -> float | None: ...
    @property
    def last_read(self) -> LastRead: ...
    __hash__ = None  # type: ignore[assignment]

class Profile:
    def __init__(
        self, layers: Sequence[Layer], *, step_seconds: float = 0.0, backward_order: Sequence[int] = ...
    ) -> None: ...
    @property
    def layers(self) -> tuple[Layer, ...]: ...
    @property
    def step_seconds(self) -> float: ...
    @property
    def sizes_are_estimated(self) -> bool: ...
    @property
    def backward_order(self) -> tuple[int, ...]: ...
    @staticmethod
    def from_json(text: str, *, nan_as_zero: bool = False) -> Profile: ...
    def to_json(self) -> str: ...
    @staticmethod
    def load(path: str | os.PathLike[str], *, nan_as_zero: bool = False) -> Profile: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    __hash__ = None  # type: ignore[assignment]

def compute_seconds(profile: Profile) -> float: ...
def import_public_profile(
    backward_json: str,
    sync_json: str,
    *,
    forward_ratio: float = 0.5,
    nan_as_zero: bool = False,
    assumed_bandwidth_bytes_per_second: float | None = None,
    workers: int = 2,
) -> tuple[Profile, list[str]]: ...

class Link:
    def __init__(
        self,
        *,
        bandwidth_bytes_per_second: float | None = None,
        latency_seconds: float = 0.0,
        workers: int = 2,
        in_flight: int = 1,
    ) -> None: ...
    @property
    def bandwidth_bytes_per_second(self) -> float | None: ...
    @property
    def latency_seconds(self) -> float: ...
    @property
    def workers(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    __hash__ = None  # type: ignore[assignment]

def layer_transfer_seconds(profile: Profile, link: Link) -> list[float]: ...

class Quantity(enum.Enum):
    parameters = 0
    gradients = 1

class EventKind(enum.Enum):
    before_forward = 0
    after_forward = 1
    after_backward = 2
    before_step = 3
    after_step = 4

class OpMode(enum.Enum):
    in_place = 0
    held = 1
    carried = 2

class Update(enum.Enum):
    step = 0
    fused = 1

class Segment:
    def __init__(self, layer: int, begin: float = 0.0, end: float = 1.0) -> None: ...
    @property
    def layer(self) -> int: ...
    @property
    def begin(self) -> float: ...
    @property
    def end(self) -> float: ...
    __hash__ = None  # type: ignore[assignment]

class Event:
    def __init__(self, iteration: int, kind: EventKind, layer: int = 0) -> None: ...
    @property
    def iteration(self) -> int: ...
    @property
    def kind(self) -> EventKind: ...
    @property
    def layer(self) -> int: ...
    __hash__ = None  # type: ignore[assignment]

class Op:
    def __init__(
        self, segments: Sequence[Segment], *, launch: Event, deadline: Event, quantity: Quantity = ...
    ) -> None: ...
    @property
    def quantity(self) -> Quantity: ...
    @property
    def segments(self) -> tuple[Segment, ...]: ...
    @property
    def launch(self) -> Event: ...
    @property
    def deadline(self) -> Event: ...
    @property
    def num_steps_crossed(self) -> int: ...
    __hash__ = None  # type: ignore[assignment]

class Plan:
    def __init__(
        self,
        *,
        planner: str,
        period: int,
        layers: Sequence[str],
        ops: Sequence[Op],
        update: Update = Update.step,
    ) -> None: ...
    @property
    def planner(self) -> str: ...
    @property
    def period(self) -> int: ...
    @property
    def update(self) -> Update: ...
    @property
    def layers(self) -> tuple[str, ...]: ...
    @property
    def ops(self) -> tuple[Op, ...]: ...
    @staticmethod
    def from_json(text: str) -> Plan: ...
    def to_json(self) -> str: ...
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Plan: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    __hash__ = None  # type: ignore[assignment]

def validate_plan(plan: Plan, profile: Profile) -> None: ...
def op_mode(op: Op, profile: Profile) -> OpMode:
    """ValueError where the op has a layer that the profile lacks."""

def booked_bytes(plan: Plan, profile: Profile) -> int: ...

class SpanKind(enum.Enum):
    forward = 0
    backward = 1
    step = 2
    wait = 3
    link = 4

class Span:
    def __init__(
        self,
        kind: SpanKind,
        name: str,
        *,
        rank: int = 0,
        iteration: int = 0,
        begin_seconds: float,
        end_seconds: float,
    ) -> None: ...
    @property
    def kind(self) -> SpanKind: ...
    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def iteration(self) -> int: ...
    @property
    def begin_seconds(self) -> float: ...
    @property
    def end_seconds(self) -> float: ...

class Simulation:
    @property
    def iteration_seconds(self) -> float: ...
    @property
    def compute_seconds(self) -> float: ...
    @property
    def link_seconds(self) -> float: ...
    @property
    def exposed_seconds(self) -> float: ...
    @property
    def limit_seconds(self) -> float: ...
    @property
    def bound_seconds(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def ops_per_iteration(self) -> float: ...
    @property
    def staging_bytes(self) -> int: ...
    @property
    def bytes_per_iteration(self) -> float | None: ...

def simulate(plan: Plan, profile: Profile, link: Link, *, staging_bytes: int = ...) -> Simulation: ...
def simulate_timeline(plan: Plan, profile: Profile, link: Link) -> list[Span]: ...
def to_chrome_trace(spans: Sequence[Span]) -> str: ...
def bound_seconds(
    profile: Profile,
    transfer_seconds: Sequence[float],
    period: int,
    *,
    mode: OpMode = ...,
    latency_seconds: float = 0.0,
    in_flight: int = 1,
) -> float: ...

class SearchOptions:
    def __init__(
        self,
        *,
        max_nodes: int = 10_000_000,
        max_seconds: float | None = None,
        at_least_one: bool = True,
        optimal_hiding: bool = True,
        delayed_overflow: bool = True,
    ) -> None: ...
    @property
    def max_nodes(self) -> int: ...
    @property
    def max_seconds(self) -> float | None: ...
    @property
    def at_least_one(self) -> bool: ...
    @property
    def optimal_hiding(self) -> bool: ...
    @property
    def delayed_overflow(self) -> bool: ...

class SearchStatistics:
    @property
    def nodes(self) -> int: ...
    @property
    def complete_solutions(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def complete(self) -> bool: ...

def planner_quantity(planner: str) -> Quantity:
    """What the plans of a planner average. Raises ValueError for an unknown one."""

def planner_can_fuse(planner: str) -> bool:
    """Whether a planner makes plans with fused updates. Raises ValueError for an unknown one."""

def planners() -> list[tuple[str, str]]: ...
def make_plan(
    planner: str,
    profile: Profile,
    link: Link,
    *,
    period: int = 5,
    staging_bytes: int = ...,
    max_delay: int = 0,
    slack: float = 0.0,
    fill_bubbles: bool = False,
    drift: Sequence[float] = (),
    search: SearchOptions = ...,
    fused_update: bool = False,
) -> Plan: ...
def make_plan_and_report(
    planner: str,
    profile: Profile,
    link: Link,
    *,
    period: int = 5,
    staging_bytes: int = ...,
    max_delay: int = 0,
    slack: float = 0.0,
    fill_bubbles: bool = False,
    drift: Sequence[float] = (),
    search: SearchOptions = ...,
    fused_update: bool = False,
) -> tuple[Plan, SearchStatistics | None]: ...
def fill_bubbles(plan: Plan, profile: Profile, link: Link, *, drift: Sequence[float] = ()) -> Plan: ...
def choose_period(
    profile: Profile,
    link: Link,
    *,
    margin: float = 0.02,
    max_period: int = 100,
    slack: float = 0.0,
    fused_update: bool = False,
) -> int: ...

class Treatment(enum.Enum):
    """What becomes of a layer in an iteration."""

    skipped = ...
    alone = ...
    merged = ...

class Decision:
    """Whether a layer is averaged in an iteration, and why."""

    @property
    def is_due(self) -> bool: ...
    @property
    def rule(self) -> str:
        """That made the layer due, or that was asked last."""
    @property
    def value(self) -> float:
        """What the rule looked at."""
    @property
    def limit(self) -> float:
        """What it was compared with."""

class LayerPolicies:
    """The policies of all layers of a model, with their counters."""

    def __init__(self, layers: Sequence[str], policies: str, *, first_iteration: int = 0) -> None: ...
    @property
    def iteration(self) -> int:
        """That the decisions are about."""
    @property
    def decisions(self) -> tuple[Decision, ...]: ...
    def staleness(self, layer: int) -> int: ...
    @property
    def need_similarity(self) -> tuple[bool, ...]: ...
    def iteration_ends(self, similarities: Sequence[float], *, out_of_turn: Sequence[int] = ...) -> None:
        """Ends the iteration and decides for the next one. Similarities of layers, NaN where unknown."""
    def state(self) -> str: ...
    def set_state(self, state: str) -> None: ...

def normalized_policies(policies: str) -> str:
    """The same policies (JSON) with all keys. Raises ValueError."""

def staggered_phases(periods: Sequence[int], num_bytes: Sequence[float]) -> list[int]:
    """Phases of fixed periods, so that iterations have about equally much to send."""

def with_due_layers(profile: Profile, is_due: Sequence[bool]) -> Profile:
    """The profile of the same computation in which only these layers have parameters."""

def plan_due_layers(profile: Profile, link: Link, is_due: Sequence[bool], *, slack: float = 0.0) -> Plan:
    """A plan of period 1 that averages the layers that are due and no others."""

def treatments(plan: Plan) -> tuple[Treatment, ...]: ...
