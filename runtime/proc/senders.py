"""Who sends messages to this process: the connections, and the nodes that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..call import Connection
from ..errors import ProtocolError
from ..tree import Inbox
from ..wire import SAME_VERSION
from .mailboxes import Sender

if TYPE_CHECKING:
    from .calls import ServedCall

__all__ = ["Peer", "Senders"]

_MOST_NUMBERS = 4096


@dataclass(slots=True, eq=False)
class Peer:
    """One connection, whose messages it carries, and its calls that are not done."""

    connection: Connection
    sender: Sender
    calls: dict[int, ServedCall] = field(default_factory=dict)

    def enter(self, call: ServedCall) -> None:
        """From now on it is under way; nothing for a tell, which goes on when the connection is gone.

        Raises:
            ProtocolError: there is one of that number.
        """
        if call.is_tell:
            return
        if call.call in self.calls:
            raise ProtocolError("protocol_error", f"two calls of the number {call.call}", SAME_VERSION)
        self.calls[call.call] = call


class Senders:
    """On the loop's thread, where nothing else is said."""

    def __init__(self) -> None:
        self._peers: dict[Connection, Peer] = {}
        self._senders: dict[str, Sender] = {}
        self._last_numbers: dict[str, int] = {}

    def peer(self, connection: Connection) -> Peer:
        """What there is of a connection, made with its first message."""
        return self._peers.get(connection) or self._first(connection)

    def _first(self, connection: Connection) -> Peer:
        hello = connection.peer_hello
        origin = str(hello.get("for") or hello.get("id") or id(connection))
        sender = self._senders.get(origin)
        if sender is None:
            sender = self._senders[origin] = Sender(origin)
        sender.connected(connection)
        peer = self._peers[connection] = Peer(connection, sender)
        return peer

    def known(self, connection: Connection) -> Peer | None:
        return self._peers.get(connection)

    def peers(self) -> tuple[Peer, ...]:
        """Any thread."""
        return tuple(self._peers.values())

    def all(self) -> tuple[Sender, ...]:
        """Any thread."""
        return tuple(self._senders.values())

    def inbox(self, sender: Sender) -> Inbox:
        """What it sent numbered, which goes on where it was when the sender was last forgotten."""
        if sender.inbox is None:
            sender.inbox = Inbox(self._last_numbers.pop(sender.origin, 0))
        return sender.inbox

    def left(self, connection: Connection) -> Peer | None:
        """A connection has ended; its sender stays until `forget`."""
        peer = self._peers.pop(connection, None)
        if peer is not None:
            peer.sender.connections.remove(connection)
        return peer

    def forget(self, sender: Sender) -> None:
        """Nothing more of it is expected, unless it has come back; what it sent too early for its order is
        dropped.
        """
        if sender.connections or self._senders.get(sender.origin) is not sender:
            return
        del self._senders[sender.origin]
        if sender.inbox is not None:
            self._last_numbers[sender.origin] = sender.inbox.order.last
            while len(self._last_numbers) > _MOST_NUMBERS:
                del self._last_numbers[next(iter(self._last_numbers))]
