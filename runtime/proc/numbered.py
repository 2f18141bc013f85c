"""Numbered messages: those that come through relays, or directly behind such, in their sender's order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from ..addresses import read_address
from ..call import Connection
from ..errors import MilkweedError, Unavailable
from ..pickling import dumps
from ..tree import Inbox, read_numbered, standing
from ..wire import Kind, WireFrame
from .actor_table import ActorTable, EarlyMessages, not_here
from .calls import NumberedCall, ServedCall, refuse
from .senders import Peer, Senders
from .turns import Turns

__all__ = ["NumberedMessages"]

_DOUBTFUL_S = 10.0


class NumberedMessages:
    """Takes each once, when its turn has come; one that comes again is answered as the first time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: ActorTable,
        early: EarlyMessages,
        senders: Senders,
        turns: Turns,
    ) -> None:
        self._loop = loop
        self._table = table
        self._early = early
        self._senders = senders
        self._turns = turns
        self._since = time.monotonic_ns()

    def came(self, connection: Connection, frame: WireFrame, rest: memoryview) -> None:
        """`rest` follows the address: the envelope and the message in it."""
        envelope, message = read_numbered(rest)
        if self._table.get(read_address(message)[0]) is None and self._early.keep(connection, frame):
            return
        peer = self._senders.peer(connection)
        inbox = self._senders.inbox(peer.sender)
        inbox.done(envelope.done)
        if envelope.number and inbox.order.knows(envelope.number):
            if frame.kind is Kind.CALL:
                again = inbox.again(envelope.number, (connection, frame.call))
                if isinstance(again, NumberedCall):
                    peer.calls[frame.call] = again
            return
        stands = standing(envelope, inbox.order.last, time.monotonic_ns() - self._since)
        if stands == "too old":
            refuse(connection, frame, _restarted())
            return
        take = self._to_take(peer, inbox, frame, envelope.number, message)
        if stands == "follows":
            _take_all(inbox.order.give_up(envelope.previous))
        _take_all(inbox.order.arrived(envelope, take))
        if stands == "may await":
            self._loop.call_later(_DOUBTFUL_S, lambda: _take_all(inbox.order.give_up(envelope.previous)))

    def _to_take(
        self, peer: Peer, inbox: Inbox, frame: WireFrame, number: int, message: memoryview
    ) -> Callable[[], None]:
        """What is to be done with a message in its turn."""
        actor_id, method, arguments = read_address(message)
        actor = self._table.get(actor_id)
        if actor is None or method not in actor.endpoints:
            error = not_here(actor_id, method, actor)
            if number and frame.kind is Kind.CALL:
                inbox.refused(number, Kind.ERROR, dumps(error))
            return partial(refuse, peer.connection, frame, error)
        if not number:
            call = ServedCall(peer, frame, arguments, actor, method, self._turns)
        else:
            call = NumberedCall(peer, frame, arguments, actor, method, self._turns)
            call.begin(inbox, number)
        peer.enter(call)
        return partial(self._turns.take, call)


def _take_all(messages: Sequence[Callable[[], None]]) -> None:
    for take in messages:
        take()


def _restarted() -> MilkweedError:
    return Unavailable(
        "proc_lost",
        "the proc that was sent this call ended, and was started again since",
        "It may have had its effect: look, then call again.",
    )
