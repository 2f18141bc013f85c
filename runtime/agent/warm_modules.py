"""What starters import: `MILKWEED_WARM_MODULES`, names with commas between; set but empty: no warm starts.

A starter holds what it has imported for the life of its host, some 150 MB of its own for torch. What it forks
shares that memory: where two ranks are alive, it has cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["VARIABLE", "modules_of_procs", "modules_of_runs", "procs_may_bring_modules"]

VARIABLE = "MILKWEED_WARM_MODULES"


def modules_of_runs(env: Mapping[str, str]) -> tuple[str, ...]:
    """What a starter of runs imports: torch where nothing is said."""
    return _names(env.get(VARIABLE, "torch"))


def modules_of_procs(env: Mapping[str, str]) -> tuple[str, ...]:
    """What the starter of procs imports beside what procs are made of: nothing where nothing is said.

    It imports at the agent's start, whether there will be procs that need torch or not.
    """
    return _names(env.get(VARIABLE, ""))


def procs_may_bring_modules(env: Mapping[str, str]) -> bool:
    """Whether that starter also imports, once, what an owner of procs has of `LARGE_MODULES`."""
    return VARIABLE not in env


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))
