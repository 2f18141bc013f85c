"""What the demonstration reads out of answers: pure functions of text."""

from __future__ import annotations

import re
from difflib import unified_diff

__all__ = ["diff", "final_loss", "stack_groups", "step_losses", "verdict"]

_STEP = re.compile(r"^step +(\d+) loss (\d+\.\d+)$", re.MULTILINE)
_FINAL = re.compile(r"^finished: mean loss (\d+\.\d+)$", re.MULTILINE)
_GROUP = re.compile(r"^ranks? ([0-9,-]+)(?: \((.*)\))?:$", re.MULTILINE)


def step_losses(text: str) -> dict[int, float]:
    """Loss by step, in the order in which it was printed."""
    return {int(step): float(loss) for step, loss in _STEP.findall(text)}


def final_loss(text: str) -> float | None:
    """The mean loss that a finished training prints, None where it has not finished."""
    found = _FINAL.search(text)
    return float(found[1]) if found else None


def verdict(report: str) -> str:
    """The first line of a stack dump, which says who is elsewhere."""
    return report.partition("\n")[0]


def stack_groups(report: str) -> dict[str, str]:
    """What each group of ranks of a stack dump waits in: `{"3": "barrier", "0-2": "all_reduce"}`."""
    return {ranks: what.partition(",")[0] for ranks, what in _GROUP.findall(report)}


def diff(before: str, after: str, name: str) -> str:
    """A unified diff of one file."""
    lines = unified_diff(before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=2)
    return "\n".join(lines)
