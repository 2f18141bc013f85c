"""Which failure of a rank follows from another one's: what it said last. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["find_cause", "is_consequence"]

# What a rank says when another one has gone, though it may end before its cause does.
_CONSEQUENCE = re.compile(
    r"closed by peer|reset by peer|peer closed|Broken pipe|Connection refused|remote process exited"
    r"|DistNetworkError|DistStoreError|ConnectionResetError|BrokenPipeError|EOFError"
)
_RAISED = re.compile(r"^(?:\[rank\d+\]: ?)?[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b")
_HEADER = "Traceback (most recent call last):"


def is_consequence(text: str) -> bool:
    """Whether an exception's words tell of a lost connection."""
    return _CONSEQUENCE.search(text) is not None


def find_cause(tails: Sequence[Sequence[str]]) -> int:
    """The place of the rank that the others' failures follow from, of the last lines of each, by their ends.

    The first one, unless it only lost its connection and another one raised something else.
    """
    if not tails or not is_consequence(_last(tails[0])):
        return 0
    for at, tail in enumerate(tails[1:], 1):
        raised = _HEADER in "\n".join(tail) and _RAISED.match(_last(tail)) is not None
        if raised and not is_consequence(_last(tail)):
            return at
    return 0


def _last(tail: Sequence[str]) -> str:
    return next((line for line in reversed(tail) if line.strip()), "")
