"""Lines of a text that a regular expression matches."""

from __future__ import annotations

import time

from ...runtime.patterns import compile_pattern

__all__ = ["grep"]


def grep(text: str, pattern: str, *, numbered: bool = False, budget_s: float = 2.0) -> str:
    """The lines that match, each ended by a newline; empty when none does.

    Args:
        pattern: a regular expression in Python's syntax, found anywhere in a line.
        numbered: put `12:` before the twelfth line.

    Raises:
        InvalidArgument: the pattern is wrong, or cannot be searched for within the budget.
    """
    compiled = compile_pattern(pattern)
    deadline = time.monotonic() + budget_s
    return "".join(
        f"{number}:{line}\n" if numbered else f"{line}\n"
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
        if compiled.search(line, deadline)
    )
