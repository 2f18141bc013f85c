"""A connection as services and their callers use it: on one loop, with deadlines and cancellation."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import anyio
import anyio.abc

from ..actor import Actor
from ..errors import MilkweedError, ProtocolError, Unavailable
from ..pickling import dumps, loads
from ..receiving import fresh_memory
from ..wire import SAME_VERSION, Kind, WireFrame
from .connection import LOOK_AND_REPEAT, Connection
from .desk import Desk
from .ref import ActorRef

__all__ = ["Session"]

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Actor)

_DEADLINE_S = 45.0
_MAX_PAYLOAD = 256 * 1024 * 1024


class Session:
    """One peer. `run` drives it; it ends when either side closes, and every open call then fails."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        role: str,
        actors: Mapping[str, Actor] | None = None,
        peer: str = "peer",
        memory: Callable[[int], memoryview] = fresh_memory,
    ) -> None:
        """`memory` is what large frames are received into, by their size."""
        self._desk = Desk(actors or {})
        self._connection = Connection(
            sock,
            asyncio.get_running_loop(),
            role=role,
            handler=self._desk,
            peer=peer,
            max_payload=_MAX_PAYLOAD,
            memory=memory,
        )
        self._connection.on_closed.append(lambda _: self.closed.set())
        self.closed = anyio.Event()

    @property
    def peer_hello(self) -> dict[str, Any]:
        return self._connection.peer_hello

    @property
    def reason(self) -> str:
        return self._connection.reason

    def actor(self, name: str, cls: type[A]) -> ActorRef[A]:
        """A reference to the peer's actor of that name; `cls` gives the endpoints' types."""
        return ActorRef(self, name, cls, _DEADLINE_S)

    def close(self) -> None:
        """Ends `run`; calls under way fail."""
        self._connection.close()

    def abandon(self) -> None:
        """In a forked child: lets go of the socket, which is the parent's."""
        self._connection.abandon()

    async def drain(self) -> None:
        """Lets the calls under way here end and their replies go out, then closes."""
        await self._desk.idle()
        await self._connection.flushed()
        self.close()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Shakes hands, reports started, then serves until the connection ends.

        Raises:
            ProtocolError: the peer is not Milkweed, or of another version.
            Unavailable: connection_lost, it ended before the handshake was over. Later ends are no error.
        """
        try:
            self._connection.start()
            await self._connection.shaken()
            task_status.started()
            await self.closed.wait()
            if self.reason.startswith(("protocol_error", "version_mismatch")):
                logger.warning("%s: %s", self._connection.peer, self.reason)
        finally:
            self._connection.close()
            with anyio.CancelScope(shield=True):
                await self._desk.idle()

    async def request(self, actor: str, method: str, args: Any, kwargs: Any, deadline_s: float | None) -> Any:
        """Sends one call and awaits its reply; `ActorRef` is the typed way to it."""
        connection = self._connection
        if connection.is_closed:
            raise connection.lost()
        replied: asyncio.Future[WireFrame | MilkweedError] = asyncio.get_running_loop().create_future()

        def on_reply(reply: WireFrame | MilkweedError) -> None:
            if not replied.done():
                replied.set_result(reply)

        call = connection.send_call(dumps((actor, method, args, kwargs)), on_reply)
        try:
            async with asyncio.timeout(deadline_s) as timer:
                if connection.is_full:
                    await connection.drained()
                reply = await replied
        except TimeoutError:
            if not timer.expired():
                raise
            raise Unavailable(
                "deadline_exceeded",
                f"{connection.peer} did not answer {actor}.{method} within {deadline_s:g} s",
                LOOK_AND_REPEAT,
            ) from None
        finally:
            if connection.forget(call):
                connection.send_cancel(call)
        return _value_of(reply)


def _value_of(reply: WireFrame | MilkweedError) -> Any:
    """
    Raises:
        MilkweedError: what the other side raised, or why there is no reply.
    """
    if isinstance(reply, MilkweedError):
        raise reply
    try:
        value = loads(reply.body, reply.buffers)
    except Exception as error:
        raise ProtocolError("protocol_error", f"a reply could not be read: {error!r}", SAME_VERSION) from None
    if reply.kind is Kind.ERROR:
        raise value
    return value
