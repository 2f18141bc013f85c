"""What becomes of an allocation, as its scheduler tells it.

    Queued -> Starting -> Running -> Ended
                 |  Lost: some hosts, the others go on
                 `- Preempted, or Lost of all -> Queued again, or Ended

A scheduler that gives hosts at once leaves out what does not happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "AllocationEvent",
    "Ended",
    "Ending",
    "HowEnded",
    "Lost",
    "Preempted",
    "Queued",
    "Running",
    "Starting",
]

HowEnded = Literal["completed", "cancelled", "time_limit", "failed", "node_failed", "preempted", "forgotten"]


@dataclass(frozen=True, slots=True)
class Queued:
    """It waits. `position` counts from 1 among `waiting` of its queue; 0: unknown.

    `looked_at` is False until the scheduler has considered it: it may start at once.
    """

    reason: str
    position: int = 0
    waiting: int = 0
    expected_start_at: float | None = None
    looked_at: bool = True


@dataclass(frozen=True, slots=True)
class Starting:
    """Hosts are given and the command is being started on them: `Scheduler.addresses` knows them."""


@dataclass(frozen=True, slots=True)
class Running:
    """The command runs on all hosts."""


@dataclass(frozen=True, slots=True)
class Lost:
    """These hosts are gone; `why` is empty where their own last words tell more than the scheduler."""

    hosts: tuple[int, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """All hosts will be taken soon."""

    why: str


@dataclass(frozen=True, slots=True)
class Preempted:
    """All hosts were taken for others, who come first."""

    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The allocation is over, by nobody's release; nothing of it comes back."""

    how: HowEnded
    why: str


AllocationEvent = Queued | Starting | Running | Lost | Ending | Preempted | Ended
