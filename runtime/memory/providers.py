"""What a way of moving memory is: a provider, its line to one owner, and a job to be done on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .. import _native_memory as native
from .handle import Handle
from .holding import Held

__all__ = ["AT_OWNER", "HERE", "Job", "Line", "Provider", "Unreachable"]

HERE, AT_OWNER = "here", "at its owner"


class Unreachable(Exception):
    """This way does not lead there, and nothing was moved that another way may not move again.

    `lasting`: it need not be tried again. `forbidden`: it would lead there if rules of this machine let it.
    """

    def __init__(self, reason: str, *, lasting: bool = True, forbidden: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lasting = lasting
        self.forbidden = forbidden


@dataclass(slots=True, eq=False, weakref_slot=True)
class Job:
    """One transfer: `length` bytes between `offset` of a region and the start of `local`.

    `staged` is filled with the ends (HERE, AT_OWNER) where a device's bytes go through memory of the host.
    """

    handle: Handle
    write: bool
    offset: int
    length: int
    local: Held
    deadline: float
    threads: int = 1
    staged: set[str] = field(default_factory=set)
    stop: native.Stop = field(default_factory=native.Stop)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stoppers: list[Callable[[], object]] = field(default_factory=list)

    def cancel(self) -> None:
        """Ends it soon; any thread."""
        with self._lock:
            self.stop.set()
            stoppers = tuple(self._stoppers)
            self._stoppers.clear()  # jobs of its pieces share it
        for stop in stoppers:
            stop()

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """Has `stop` called when it is cancelled, or at once if it was."""
        with self._lock:
            if not self.stop.is_set():
                self._stoppers.append(stop)
                return
        stop()


class Line(Protocol):
    """A way to one owner's regions. `quick`: so many bytes take no longer than a change of threads."""

    @property
    def quick(self) -> int: ...

    def move(self, job: Job) -> None:
        """Returns when all is moved; blocks.

        Raises:
            Unreachable: it cannot be done in this way.
            MilkweedError: it cannot be done at all (`outcomes`).
        """


class Provider(Protocol):
    """One kind of transport. `at_hand`: to reach an owner, or not, takes no time to speak of."""

    @property
    def name(self) -> str: ...

    @property
    def at_hand(self) -> bool: ...

    def reach(self, handle: Handle) -> Line:
        """
        Raises:
            Unreachable: this way does not lead to that region.
            MilkweedError: its owner is gone.
        """

    def close(self) -> None:
        """Lets go of everything, in a forked child too: there of what is the parent's."""
