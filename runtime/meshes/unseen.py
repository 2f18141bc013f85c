"""Errors of a call that its program may never look at: then they are told when they go."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Unseen"]


class Unseen:
    """Held by what a call gave, and by all that was made of it; the last one that goes takes it along."""

    __slots__ = ("_words", "seen")

    def __init__(self, words: Callable[[], str]) -> None:
        """`words` says what the errors are; asked only if it comes to that."""
        self._words = words
        self.seen = False

    def __del__(self) -> None:
        if self.seen:
            return
        with suppress(Exception):  # the process may be about to end
            sys.stderr.write(f"milkweed: {self._words()}\n")
            sys.stderr.flush()
