"""A connection to a relay, for the messages of one sender, watched while it owes answers."""

from __future__ import annotations

import threading
import time
from functools import partial

from ..call import Connection
from ..call.connection import OnReply
from ..errors import MilkweedError
from ..node import Node
from ..pickling import Pickled
from ..wire import Kind, WireFrame
from .envelope import Header, relayed
from .routing import Branch

__all__ = ["BEAT_S", "PATIENCE_S", "TreeLine", "open_line"]

BEAT_S = 0.5
PATIENCE_S = 3.0
_SLOTS = 64


def open_line(node: Node, origin: str, socket: str) -> Connection:
    """To a proc, for what comes from the node `origin`.

    Raises:
        Unavailable: connection_lost, nobody listens there.
    """
    return node.line(socket, "a relay", {"id": f"{node.id}>{origin}", "for": origin})


class TreeLine:
    """Any thread. A relay that says nothing and reads nothing for `patience_s` seconds while it owes an
    answer (it is stopped, or its loop is kept busy) is closed, as if it had ended.

    Raises:
        Unavailable: connection_lost, nobody listens there.
    """

    def __init__(self, node: Node, origin: str, socket: str, patience_s: float = PATIENCE_S) -> None:
        self.connection = open_line(node, origin, socket)
        self.open = 0
        self._node = node
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._slots: dict[int, tuple[int, Branch]] = {}
        self._watched = False
        self._unsent = 0
        self._moved_at = 0.0

    def send(self, header: Header, branch: Branch, message: Pickled, on_reply: OnReply) -> int:
        """Sends a message for all of a branch; the number of the call."""
        with self._lock:
            slot, new = self._slot(branch)
            if not self.open:
                self._moved_at = time.monotonic()
            self.open += 1
            call = self.connection.send_call(
                relayed(header, slot, branch if new else None, message), partial(self._heard, on_reply)
            )
            watch, self._watched = not self._watched, True
        if watch:
            self._node.loop.call_soon_threadsafe(self._look)
        return call

    def _slot(self, branch: Branch) -> tuple[int, bool]:
        """Its slot, and whether the relay does not have the branch there."""
        known = self._slots.pop(id(branch), None)
        if known is not None:
            self._slots[id(branch)] = known  # it was used last
            return known[0], False
        slot = len(self._slots)
        if slot == _SLOTS:
            slot, _ = self._slots.pop(next(iter(self._slots)))
        self._slots[id(branch)] = slot, branch
        return slot, True

    def _heard(self, on_reply: OnReply, reply: WireFrame | MilkweedError) -> None:
        self._moved_at = time.monotonic()
        if isinstance(reply, MilkweedError) or reply.kind is not Kind.PART:
            with self._lock:
                self.open -= 1
        on_reply(reply)

    def _look(self) -> None:
        connection = self.connection
        with self._lock:
            self._watched = bool(self.open) and not connection.is_closed
            if not self._watched:
                return
        unsent, self._unsent = self._unsent, connection.unsent
        if unsent != self._unsent:
            self._moved_at = time.monotonic()
        if time.monotonic() - self._moved_at >= self._patience_s:
            connection.close(f"it said nothing for {self._patience_s:g} s")
        self._node.loop.call_later(self._patience_s / 4, self._look)
