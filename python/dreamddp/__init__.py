"""Data-parallel training over slow links by partial local SGD.

Planning and simulation need no PyTorch; what trains (`DreamDDP`, ..) is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

from dreamddp._core import (
    Event,
    EventKind,
    LastRead,
    LastReadKind,
    Layer,
    Link,
    Op,
    OpMode,
    Plan,
    Profile,
    Quantity,
    SearchOptions,
    SearchStatistics,
    Segment,
    Simulation,
    Span,
    SpanKind,
    SyncError,
    Update,
    __version__,
    choose_period,
    fill_bubbles,
    make_plan,
    make_plan_and_report,
    planners,
    simulate,
    simulate_timeline,
    to_chrome_trace,
)
from dreamddp.torch_version import check_torch_version

if TYPE_CHECKING:
    from dreamddp.engine import DreamDDP
    from dreamddp.sync_stats import SyncStats

check_torch_version()

__all__ = [
    "DreamDDP",
    "Event",
    "EventKind",
    "LastRead",
    "LastReadKind",
    "Layer",
    "Link",
    "Op",
    "OpMode",
    "Plan",
    "Profile",
    "Quantity",
    "SearchOptions",
    "SearchStatistics",
    "Segment",
    "Simulation",
    "Span",
    "SpanKind",
    "SyncError",
    "SyncStats",
    "Update",
    "__version__",
    "choose_period",
    "fill_bubbles",
    "make_plan",
    "make_plan_and_report",
    "planners",
    "simulate",
    "simulate_timeline",
    "to_chrome_trace",
]

# Name -> the module that defines it; all of them import torch.
_LAZY = {
    "DreamDDP": "dreamddp.engine",
    "SyncStats": "dreamddp.sync_stats",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
