"""Names of planners that people give."""

from dreamddp._core import planners, reject


def check_planner(name: str, field: str) -> str:
    """The name. Raises ValueError naming `field` where no planner has it."""
    known = [known for known, _ in planners()]
    if name not in known:
        reject(
            field, repr(name), f"one of {', '.join(known)}", "Run dreamddp plan --help for what each does."
        )
    return name
