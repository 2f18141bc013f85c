"""What died, how, when, and what it left to read."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from ..mesh import format_ranks
from ..records import Exit
from ..user_code import place_in_dump

__all__ = ["Failure"]

What = Literal["host", "proc", "actor", "rank"]

_LINE = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """One death, as its owners are told of it.

    `name` is of what died, `mesh` of the mesh that it belonged to, with its `ranks` there and, where the
    mesh has named dimensions, its `point`. How: `exit` of a process, `exception` (the type's name) and
    `message` of an actor, else `reason` (why a host counts as lost). `at` is wall clock. `tail` are its
    last output lines (of a host: those that its procs were heard to print, with their ranks), `stacks` what
    it could still tell of its threads; `restarts` is how often it had been restarted before.
    """

    what: What
    name: str
    mesh: str = ""
    ranks: tuple[int, ...] = ()
    point: tuple[tuple[str, int], ...] = ()
    exit: Exit | None = None
    exception: str = ""
    message: str = ""
    reason: str = ""
    at: float = 0.0
    tail: tuple[str, ...] = ()
    stacks: str = ""
    restarts: int = 0

    @property
    def how(self) -> str:
        """In a few words: `SIGKILL`, `SIGSEGV at train.py:41 in step`, `exit 1`, `KeyError: 'no such layer'`,
        `its agent was killed`.
        """
        if self.exception:
            return f"{self.exception}: {self.message}" if self.message else self.exception
        if self.reason or self.exit is None:
            return self.reason or "ended"
        place = place_in_dump(self.stacks) if self.exit.signal is not None else ""
        return f"{_exit_in_words(self.exit)}{f' at {place}' if place else ''}"

    def summary(self) -> str:
        """One line of at most 200 characters: who, where, how, after how many restarts."""
        place = ", ".join(f"{name}={index}" for name, index in self.point)
        if not place and self.ranks and self.what != "rank":
            place = f"rank{'s' if len(self.ranks) > 1 else ''} {format_ranks(self.ranks)}"
        who = f"{self.what} {self.name}" + (f" ({place})" if place else "")
        count = (
            f" (restarted {self.restarts} time{'s' if self.restarts > 1 else ''})" if self.restarts else ""
        )
        room = _LINE - len(who) - len(count) - 2
        how = " ".join(self.how.split())
        return f"{who}: {how if len(how) <= room else f'{how[: max(0, room - 3)]}...'}{count}"[:_LINE]


def _exit_in_words(ending: Exit) -> str:
    if ending.error:
        return f"never started: {ending.error}"
    if ending.signal is not None:
        try:
            return signal.Signals(ending.signal).name
        except ValueError:
            return f"signal {ending.signal}"
    return "ended, how is not known" if ending.code is None else f"exit {ending.code}"
