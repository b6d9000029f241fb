"""What is said of one plan: the same keys wherever a plan and its simulated times are written."""

from typing import Any

from dreamddp._core import Plan, Simulation

Row = dict[str, Any]


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
