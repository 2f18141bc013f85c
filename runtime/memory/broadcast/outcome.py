"""Who is to have a buffer, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...errors import MilkweedError
from ..handle import Handle

__all__ = ["Outcome", "Received", "Receiver"]


@dataclass(frozen=True, slots=True)
class Received:
    """All of it is there. `taken_from`: the place of whom it took from last, None for the source itself;
    `transport`: by what; `seconds`: from the start on.
    """

    taken_from: int | None
    transport: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Receiver:
    """A buffer that is to be filled; `only`: the one transport to take by."""

    handle: Handle
    only: str | None = None


Outcome: TypeAlias = Received | MilkweedError
