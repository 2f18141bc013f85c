"""What a proc knows of the numbered messages of one sender: their order, and the outcomes that it has given.

A message that comes again, since a relay was lost, is answered with what its first run gives or gave.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from ..call import Connection
from ..errors import MilkweedError, Unavailable
from ..pickling import Pickled, dumps
from ..wire import Kind
from .order import Order

__all__ = ["INLINE", "Entry", "Inbox", "Route", "is_relayed", "send_outcome"]

INLINE = 256 * 1024
_MOST_KEPT = 1024
_MOST_BYTES = 16 * 1024 * 1024

Route = tuple[Connection, int]
"""Where an outcome is awaited: a connection and the number of the call there."""


class Entry(Protocol):
    """A call that came in a numbered message."""

    number: int
    routes: list[Route]
    is_tell: bool


class Inbox:
    """`order` and `arrived` belong to the loop; calls end on any thread."""

    def __init__(self, last: int = 0) -> None:
        self.order: Order[Callable[[], None]] = Order(last)
        self._lock = threading.Lock()
        self._running: dict[int, Entry] = {}
        self._kept: dict[int, tuple[Kind, Pickled]] = {}
        self._size = 0
        self._done = 0

    def add(self, entry: Entry) -> None:
        with self._lock:
            self._running[entry.number] = entry

    def finished(self, entry: Entry, kind: Kind, pickled: Pickled) -> tuple[Route, ...]:
        """Those who await the outcome. It is kept, unless one of them has it directly, which cannot fail."""
        with self._lock:
            self._running.pop(entry.number, None)
            if all(is_relayed(connection) for connection, _ in entry.routes):
                self._keep(entry.number, kind, pickled)
            return tuple(entry.routes)

    def told(self, entry: Entry) -> None:
        """A tell has ended."""
        with self._lock:
            self._running.pop(entry.number, None)

    def refused(self, number: int, kind: Kind, pickled: Pickled) -> None:
        """Keeps the answer of a message that names nothing here."""
        with self._lock:
            self._keep(number, kind, pickled)

    def again(self, number: int, route: Route) -> Entry | None:
        """Sees to the answer of a message that came before; its call, where that is still under way."""
        connection, _ = route
        with self._lock:
            entry = self._running.get(number)
            if entry is not None:
                entry.routes.append(route)
                return entry
            kept = self._kept.get(number)
            if kept is not None and not is_relayed(connection):
                self._forget(number)  # a direct answer arrives, or there is nobody
        if kept is None:
            send_outcome(route, Kind.ERROR, dumps(_not_kept()))
        else:
            send_outcome(route, *kept)
        return None

    def left(self, entry: Entry, connection: Connection) -> bool:
        """Nothing is awaited over this connection any more; whether somebody else awaits it."""
        with self._lock:
            entry.routes[:] = [route for route in entry.routes if route[0] is not connection]
            return bool(entry.routes)

    def done(self, number: int) -> None:
        """The sender has the outcomes of all numbers below this one."""
        if number <= self._done:
            return
        self._done = number
        with self._lock:
            for old in [one for one in self._kept if one < number]:
                self._forget(old)

    def _keep(self, number: int, kind: Kind, pickled: Pickled) -> None:
        if number in self._kept:
            self._forget(number)
        self._kept[number] = (kind, pickled)
        self._size += _size_of(pickled)
        # The large ones wait to be asked for; of what has been sent, the oldest may have to go.
        for old in tuple(self._kept):
            if self._size <= _MOST_BYTES and len(self._kept) <= _MOST_KEPT:
                break
            if old != number and _size_of(self._kept[old][1]) <= INLINE:
                self._forget(old)

    def _forget(self, number: int) -> None:
        self._size -= _size_of(self._kept.pop(number)[1])


def is_relayed(connection: Connection) -> bool:
    """Whether what comes over it comes from a relay, for somebody else."""
    return "for" in connection.peer_hello


def send_outcome(route: Route, kind: Kind, pickled: Pickled) -> None:
    """Over a relay only what is small; the sender asks for the rest directly."""
    connection, call = route
    if is_relayed(connection) and _size_of(pickled) > INLINE:
        connection.reply(Kind.KEPT, call, (b"", []))
    else:
        connection.reply(kind, call, pickled)


def _size_of(pickled: Pickled) -> int:
    return len(pickled[0]) + sum(map(len, pickled[1]))


def _not_kept() -> MilkweedError:
    return Unavailable(
        "outcome_lost",
        "the call has ended, but the way back of its outcome was lost and it is not kept any more",
        "It has had its effect: look, then call again.",
    )
