"""What one sender has sent here and what of it has not begun: in which order, and how much there may be."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..call import Connection

if TYPE_CHECKING:
    from ..tree import Inbox
    from .calls import ServedCall

__all__ = ["Mailbox", "Sender"]

_MOST_WAITING = 1024
_LEAST_WAITING = 256
_MOST_BYTES = 256 * 1024 * 1024
_LEAST_BYTES = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Mailbox:
    """Messages of one sender to one actor that wait for `ahead`, a sync one that has not begun."""

    ahead: ServedCall | None = None
    waiting: deque[ServedCall] = field(default_factory=deque)


class Sender:
    """A node that sends, over whichever connections: some may come from relays.

    While too many of its messages wait, its connections are not read. Its methods belong to the loop's thread
    where nothing else is said; the main thread says that a call has begun.
    """

    __slots__ = ("_boxes", "_bytes", "_lock", "_paused", "_waiting", "connections", "inbox", "origin")

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.connections: list[Connection] = []
        self.inbox: Inbox | None = None
        """What it sent numbered, if it has sent anything so."""
        # The lock guards mailboxes and counts.
        self._lock = threading.Lock()
        self._boxes: dict[str, Mailbox] = {}
        self._waiting = 0
        self._bytes = 0
        self._paused = False

    @property
    def waiting(self) -> int:
        """How many of its messages wait for their turn; any thread."""
        return self._waiting

    def connected(self, connection: Connection) -> None:
        """It sends over this one too."""
        self.connections.append(connection)
        if self._paused:
            connection.pause()

    def is_behind(self, call: ServedCall) -> bool:
        """Whether an earlier message to the same actor has not begun: then this one waits in its mailbox."""
        box = self._boxes.get(call.actor.where.actor_id)
        if box is None:
            return False
        with self._lock:
            # The main thread may have begun the one ahead just now; those that wait still go first.
            if box.ahead is None and not box.waiting:
                return False
            box.waiting.append(call)
            self._count(call)
            return True

    def put_ahead(self, call: ServedCall) -> None:
        """Its later messages to the same actor wait until this one, a sync one, has `begun`."""
        with self._lock:
            self._boxes.setdefault(call.actor.where.actor_id, Mailbox()).ahead = call
            self._count(call)

    def begun(self, call: ServedCall) -> Mailbox | None:
        """A sync call begins, or never will; its mailbox, where `following` is to be asked for. Any thread,
        and once more.
        """
        with self._lock:
            box = self._boxes.get(call.actor.where.actor_id)
            if box is None or box.ahead is not call:
                return None
            self._discount(call)
            box.ahead = None
            return box if box.waiting or self._can_resume() else None

    def following(self, box: Mailbox) -> ServedCall | None:
        """The next message of a mailbox, where its turn has come."""
        with self._lock:
            if box.ahead is not None or not box.waiting:
                return None
            call = box.waiting.popleft()
            self._discount(call)
            return call

    def hold(self, tell: ServedCall) -> None:
        """An async tell begins: nobody awaits it, so it counts as waiting until it is `released`."""
        with self._lock:
            self._count(tell)

    def released(self, tell: ServedCall) -> None:
        """It has ended."""
        with self._lock:
            self._discount(tell)
        self.resume_if_few()

    def resume_if_few(self) -> None:
        """Reads its connections again, where they are not and little enough waits."""
        with self._lock:
            resume = self._can_resume()
            self._paused = self._paused and not resume
        if resume:
            for connection in self.connections:
                connection.resume()

    def forget(self, actor_id: str) -> None:
        """That actor is no more; its mailbox goes, if nothing is in it."""
        with self._lock:
            box = self._boxes.get(actor_id)
            if box is not None and box.ahead is None and not box.waiting:
                del self._boxes[actor_id]

    def _count(self, call: ServedCall) -> None:
        self._waiting += 1
        self._bytes += call.size
        if not self._paused and (self._waiting >= _MOST_WAITING or self._bytes >= _MOST_BYTES):
            self._paused = True
            for connection in self.connections:
                connection.pause()

    def _discount(self, call: ServedCall) -> None:
        self._waiting -= 1
        self._bytes -= call.size

    def _can_resume(self) -> bool:
        return self._paused and self._waiting <= _LEAST_WAITING and self._bytes <= _LEAST_BYTES
