"""What happens to a message for the actors of a process: from its frame to the call that it is.

A message names an actor and an endpoint (`actor_table.py`). Messages of one sender to one actor start in the
order in which they were sent (`turns.py`): behind a sync one that waits for the main thread the sender's
later ones wait too. Senders whose messages pile up here are not read until some are done (`mailboxes.py`). A
sender is a node (`senders.py`): some of its messages may come through relays (`tree/`), over their
connections; those are numbered (`numbered.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..addresses import SYSTEM, read_address
from ..call import Connection
from ..tree import is_relayed
from ..wire import WireFrame
from .actor_table import ActorTable, EarlyMessages, LiveActor, not_here
from .calls import NumberedCall, ServedCall, refuse
from .main_thread import MainThread
from .numbered import NumberedMessages
from .senders import Senders
from .turns import OnFailure, Turns

__all__ = ["Actors"]

_ORPHAN_S = 3.0

RawHandler = Callable[[Connection, WireFrame, memoryview], None]


class Actors:
    """Of all connections of a process. On the loop's thread, where nothing else is said."""

    def __init__(self, loop: asyncio.AbstractEventLoop, main: MainThread, on_failure: OnFailure) -> None:
        self._loop = loop
        self._main = main
        self._table = ActorTable()
        self._early = EarlyMessages()
        self._senders = Senders()
        self._turns = Turns(loop, main, self._senders, on_failure)
        numbered = NumberedMessages(loop, self._table, self._early, self._senders, self._turns)
        self._raw: dict[tuple[str, str], RawHandler] = {(SYSTEM, "numbered"): numbered.came}

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's connections."""
        for peer in self._senders.peers():
            peer.connection.abandon()

    def add_raw(self, method: str, handler: RawHandler) -> None:
        """Has `handler` get the messages for an endpoint of the system's actor as they came."""
        self._raw[SYSTEM, method] = handler

    def add(self, actor: LiveActor) -> None:
        """The system's own has the empty id, and async endpoints alone."""
        self._table.add(actor)

    def ready(self) -> None:
        """All actors that messages may already be here for are made."""
        for connection, frame in self._early.take():
            self.called(connection, frame)

    def remove(self, actor_id: str) -> bool:
        """Whether it was here."""
        for sender in self._senders.all():
            sender.forget(actor_id)
        return self._table.remove(actor_id)

    def statistics(self) -> dict[str, int]:
        """Counts of what there is now: `actors`, `senders` (connections), `calls` under way, `waiting` for
        their turn; any thread.
        """
        peers = self._senders.peers()
        return {
            "actors": len(self._table.ids()),
            "senders": len(peers),
            "calls": sum(len(peer.calls) for peer in peers),
            "waiting": sum(sender.waiting for sender in self._senders.all()),
        }

    def called(self, connection: Connection, frame: WireFrame) -> None:
        actor_id, method, arguments = read_address(frame.body)
        actor = self._table.get(actor_id)
        if actor is None and self._early.keep(connection, frame):
            return
        if actor is None or method not in actor.endpoints:
            raw = self._raw.get((actor_id, method))
            if raw is None:
                refuse(connection, frame, not_here(actor_id, method, actor))
            else:
                raw(connection, frame, arguments)
            return
        peer = self._senders.peer(connection)
        call = ServedCall(peer, frame, arguments, actor, method, self._turns)
        peer.enter(call)
        self._turns.take(call)

    def cancelled(self, connection: Connection, call: int) -> None:
        if self._early.cancel(connection, call):
            return
        peer = self._senders.known(connection)
        found = None if peer is None else peer.calls.get(call)
        if found is not None:
            self._turns.cancel(found)

    def cancel(self, call: ServedCall) -> None:
        """See `Turns.cancel`."""
        self._turns.cancel(call)

    def cancel_sync(self, call: ServedCall) -> None:
        """Any thread."""
        self._turns.cancel_sync(call)

    def find(self, sender_id: str, call: int) -> ServedCall | None:
        """A call that is not done, by its sender's node and its number; any thread."""
        for peer in self._senders.peers():
            if peer.connection.peer_hello.get("id") == sender_id and (found := peer.calls.get(call)):
                return found
        return None

    def served(self) -> list[ServedCall]:
        """The calls of actors that are not answered, but for what the main thread runs; any thread."""
        found = [call for peer in self._senders.peers() for call in tuple(peer.calls.values())]
        running = self._main.running
        return [call for call in found if call is not running and call.actor.where.actor_id]

    def ended(self, connection: Connection) -> None:
        """A sender that left wants no answers; what it told goes on.

        What came through a relay goes on for a while, in which its sender may ask for it again.
        """
        self._early.left(connection)
        peer = self._senders.left(connection)
        if peer is None:
            return
        relayed = is_relayed(connection)
        for call in tuple(peer.calls.values()):
            if isinstance(call, NumberedCall) and (call.inbox.left(call, connection) or relayed):
                self._loop.call_later(_ORPHAN_S, self._end_orphan, call)
            else:
                self._turns.cancel(call)
        if not peer.sender.connections:
            self._loop.call_later(_ORPHAN_S if relayed else 0.0, self._senders.forget, peer.sender)

    def _end_orphan(self, call: NumberedCall) -> None:
        if not call.routes:
            self._turns.cancel(call)
