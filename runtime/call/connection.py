"""One peer on a socket: the handshake, calls in both directions, their replies and cancels.

    connection = Connection(sock, loop, role="server", handler=desk)
    connection.start()
    call = connection.send_call(pickled, on_reply)

It knows frames and numbers of calls; what a call's body means is its handler's. What is not said to be for
any thread belongs to the loop's.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import MilkweedError, ProtocolError, Unavailable
from ..pickling import Pickled
from ..receiving import fresh_memory
from ..wire import MAX_PAYLOAD, SAME_VERSION, WIRE_VERSION, Kind, WireFrame, decode_json, encode, encode_json
from .channel import HIGH_WATER, Channel

__all__ = ["LOOK_AND_REPEAT", "Connection", "Handler", "OnReply"]

logger = logging.getLogger(__name__)

_HANDSHAKE_S = 5.0
_MOST_BEFORE_HELLO = 64 * 1024
LOOK_AND_REPEAT = "It may have had its effect: look, then call again."

OnReply = Callable[[WireFrame | MilkweedError], None]
"""Called on the loop's thread, once: with a RESULT or ERROR frame, or why there will be none. Before that it
may be called with PART frames, where the peer is a relay."""


class Handler(Protocol):
    """What is done with the peer's calls."""

    def called(self, connection: Connection, frame: WireFrame) -> None: ...
    def cancelled(self, connection: Connection, call: int) -> None: ...
    def ended(self, connection: Connection) -> None: ...


class Connection:
    """See the module. It ends when either side closes, and every open call then fails."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        *,
        role: str,
        handler: Handler | None = None,
        peer: str = "peer",
        max_payload: int = MAX_PAYLOAD,
        hello: dict[str, Any] | None = None,
        handshake_s: float | None = _HANDSHAKE_S,
        memory: Callable[[int], memoryview] = fresh_memory,
    ) -> None:
        self.peer = peer
        self.peer_hello: dict[str, Any] = {}
        self.reason = ""
        self.is_closed = False
        self.on_closed: list[Callable[[Connection], None]] = []
        self.last_sent = 0
        self.last_answered = 0
        self._hello = {"wire": WIRE_VERSION, "role": role, "pid": os.getpid(), **(hello or {})}
        self._loop = loop
        self._handler = handler
        self._max_payload = max_payload
        self._handshake_s = handshake_s
        self._pending: dict[int, OnReply] = {}
        self._calls = itertools.count(1)
        self._channel = Channel(sock, loop, self._heard, self._ended, memory)
        self._channel.reader.max_payload = _MOST_BEFORE_HELLO
        self._shaken: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Says hello and begins to read; any thread.

        Calls may be sent at once: the peer gets them behind the hello.
        """
        self._channel.send([encode_json(Kind.HELLO, self._hello)])
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if not self.is_closed:
            if self._handshake_s is not None:
                self._timer = self._loop.call_later(self._handshake_s, self._not_greeted)
            self._channel.start()

    async def shaken(self) -> None:
        """Returns once the peer has said hello.

        Raises:
            ProtocolError: the peer is not Milkweed, or of another version.
            Unavailable: it said nothing, or left.
        """
        await asyncio.shield(self._shaken)

    def send_call(self, pickled: Pickled, on_reply: OnReply) -> int:
        """Sends one call and returns its number; any thread.

        Raises:
            ProtocolError: it is too large.
        """
        call = self.last_sent = next(self._calls)
        parts = encode(Kind.CALL, call, *pickled)
        self._pending[call] = on_reply
        self._channel.send(parts)
        if self.is_closed:  # it may have closed since, and not have seen this call
            self._loop.call_soon_threadsafe(self._fail, call)
        return call

    def send_tell(self, pickled: Pickled) -> None:
        """Sends one call that is not answered; any thread."""
        call = self.last_sent = next(self._calls)
        self._channel.send(encode(Kind.TELL, call, *pickled))

    def send_cancel(self, call: int) -> None:
        """Asks the peer to end a call, whose reply is still awaited; any thread."""
        self._channel.send(encode(Kind.CANCEL, call))

    def take_calls(self, handler: Handler, hello: dict[str, Any]) -> None:
        """From now on the peer may call us, and is told so by a second hello. Any thread, and once more."""
        if self._handler is None:
            self._handler = handler
            self._channel.send([encode_json(Kind.HELLO, hello)])

    def forget(self, call: int) -> bool:
        """Awaits no reply any more; whether one was awaited. Any thread."""
        return self._pending.pop(call, None) is not None

    def reply(self, kind: Kind, call: int, pickled: Pickled) -> None:
        """Answers one of the peer's calls; any thread."""
        self._channel.send(encode(kind, call, *pickled))

    @property
    def has_all(self) -> bool:
        """Whether it is known that the peer has read every call that was sent."""
        return self.last_answered >= self.last_sent

    @property
    def unsent(self) -> int:
        """Bytes that wait for the peer to take them."""
        return self._channel.backlog

    @property
    def is_full(self) -> bool:
        """Whether the peer takes what is sent so slowly that senders should await `drained`."""
        return self._channel.backlog > HIGH_WATER

    def when_sent(self, done: Callable[[], None]) -> None:
        """Calls `done` when all that was sent until now has left this process, or the peer is gone: at once,
        or later on the loop's thread. Any thread.
        """
        self._channel.when_sent(done)

    async def drained(self) -> None:
        await self._channel.drained()

    async def flushed(self) -> None:
        """Returns when all that was sent has left this process, or the peer is gone."""
        await self._channel.flushed()

    def pause(self) -> None:
        """Takes no more from the peer until `resume`."""
        self._channel.pause()

    def resume(self) -> None:
        self._channel.resume()

    def abandon(self) -> None:
        """In a forked child: lets go of the socket, which is the parent's."""
        self.is_closed = True
        self._channel.abandon()

    def close(self, reason: str = "it was closed") -> None:
        """Ends it; calls under way fail."""
        self.reason = self.reason or reason
        self._channel.close()

    def lost(self) -> Unavailable:
        """What calls fail with once it has ended."""
        return Unavailable(
            "connection_lost", f"the connection to {self.peer} ended: {self.reason}", LOOK_AND_REPEAT
        )

    def _heard(self, frame: WireFrame) -> None:
        kind = frame.kind
        if not self.peer_hello:
            self._greeted(frame)
        elif kind is Kind.RESULT or kind is Kind.ERROR or kind is Kind.KEPT:
            self.last_answered = max(frame.call, self.last_answered)
            on_reply = self._pending.pop(frame.call, None)
            if on_reply is not None:
                on_reply(frame)
        elif kind is Kind.HELLO:  # it has become our owner since
            self.peer_hello = self.peer_hello | decode_json(frame)
        elif kind is Kind.PART:
            on_reply = self._pending.get(frame.call)
            if on_reply is not None:
                on_reply(frame)
        elif kind is Kind.GOODBYE:
            self.close(f"the peer said: {decode_json(frame).get('reason')}")
        elif self._handler is None:
            raise ProtocolError("protocol_error", f"the peer sent {kind.name} to a mere caller", SAME_VERSION)
        elif kind is Kind.CALL or kind is Kind.TELL:
            self._handler.called(self, frame)
        elif kind is Kind.CANCEL:
            self._handler.cancelled(self, frame.call)

    def _greeted(self, frame: WireFrame) -> None:
        if frame.kind not in (Kind.HELLO, Kind.GOODBYE):
            raise ProtocolError(
                "protocol_error", f"{self.peer} began with {frame.kind.name} and no hello", SAME_VERSION
            )
        value = decode_json(frame)
        if frame.kind is Kind.GOODBYE:
            raise ProtocolError(
                "protocol_error",
                f"{self.peer} refused: {value.get('reason', 'no reason given')}",
                SAME_VERSION,
            )
        if value.get("wire") != WIRE_VERSION:
            raise ProtocolError(
                "version_mismatch",
                f"{self.peer} speaks wire version {value.get('wire')}, this is {WIRE_VERSION}",
                "Release the mesh with the version that allocated it, or install that version.",
            )
        self.peer_hello = value
        self._channel.reader.max_payload = self._max_payload
        if self._timer is not None:
            self._timer.cancel()
        self._shaken.set_result(None)

    def _not_greeted(self) -> None:
        self.close(f"no hello within {self._handshake_s:.0f} s")

    def _ended(self, why: BaseException | None) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(why, MilkweedError):
            self.reason = self.reason or str(why)
        else:
            self.reason = self.reason or ("it was closed" if why is None else "it broke")
        if not self._shaken.done():
            self._shaken.set_exception(self._why_not_shaken(why))
            self._shaken.exception()  # that nobody asks is no fault
        for call in tuple(self._pending):
            self._fail(call)
        if self._handler is not None:
            self._handler.ended(self)
        for callback in tuple(self.on_closed):
            callback(self)

    def _why_not_shaken(self, why: BaseException | None) -> MilkweedError:
        if isinstance(why, ProtocolError):
            return why
        if self.reason.startswith("no hello"):
            return Unavailable(
                "deadline_exceeded",
                f"{self.peer} did not say hello within {self._handshake_s:.0f} s",
                "It hangs or is stopped: see its state with ps.",
            )
        return self.lost()

    def _fail(self, call: int) -> None:
        on_reply = self._pending.pop(call, None)
        if on_reply is not None:
            on_reply(self.lost())
