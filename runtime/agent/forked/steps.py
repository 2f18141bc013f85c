"""A forked child leaves all frames of its parent behind: what it is to do is a step that the top runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Step", "run_steps"]

Step: TypeAlias = "Callable[[], Step | None]"
"""What a process does; it returns, in whatever process that is by then, what is next, or None at the end."""


def run_steps(first: Step) -> None:
    step: Step | None = first
    while step is not None:
        step = step()
