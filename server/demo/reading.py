"""What the demonstration reads out of answers: pure functions of text."""

from __future__ import annotations

import re
from difflib import unified_diff

__all__ = ["diff", "final_loss", "step_losses"]

_STEP = re.compile(r"^step +(\d+) loss (\d+\.\d+)$", re.MULTILINE)
_FINAL = re.compile(r"^finished: mean loss (\d+\.\d+)$", re.MULTILINE)


def step_losses(text: str) -> dict[int, float]:
    """Loss by step, in the order in which it was printed."""
    return {int(step): float(loss) for step, loss in _STEP.findall(text)}


def final_loss(text: str) -> float | None:
    """The mean loss that a finished training prints, None where it has not finished."""
    found = _FINAL.search(text)
    return float(found[1]) if found else None


def diff(before: str, after: str, name: str) -> str:
    """A unified diff of one file."""
    lines = unified_diff(before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=2)
    return "\n".join(lines)
