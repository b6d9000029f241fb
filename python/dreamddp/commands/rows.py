"""What plan, simulate and compare say of one plan: the same keys in JSON, the same columns in tables."""

from collections.abc import Mapping

from dreamddp._core import Plan, Simulation, format_num_bytes, format_seconds
from dreamddp.comparison import gap_text

Row = dict[str, object]


def simulation_row(plan: Plan, simulation: Simulation) -> Row:
    return {
        "planner": plan.planner,
        "period": plan.period,
        "iteration_seconds": simulation.iteration_seconds,
        "compute_seconds": simulation.compute_seconds,
        "link_seconds": simulation.link_seconds,
        "exposed_seconds": simulation.exposed_seconds,
        "limit_seconds": simulation.limit_seconds,
        "bound_seconds": simulation.bound_seconds,
        "gap": simulation.gap,
        "ops_per_iteration": simulation.ops_per_iteration,
        "staging_bytes": simulation.staging_bytes,
        "bytes_per_iteration": simulation.bytes_per_iteration,
    }


def text_of(row: Mapping[str, object], key: str) -> str:
    """The value with its unit, which the key's ending tells; "unknown" for a missing one."""
    value = row[key]
    if value is None:
        return "unknown"
    if isinstance(value, float) and key.endswith("_seconds"):
        return format_seconds(value)
    if isinstance(value, int | float) and "bytes" in key:
        return format_num_bytes(value)
    if isinstance(value, float) and key == "gap":
        return gap_text(value)
    if isinstance(value, float) and key == "speedup":
        return f"{value:.2f}x"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)
