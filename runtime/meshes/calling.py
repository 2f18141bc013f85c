"""One call of an endpoint on all ranks of a mesh, as its caller sees it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..addresses import ProcAddress
from ..call import Connection
from ..errors import MilkweedError, ProtocolError, Unavailable
from ..node import Node
from ..pickling import Pickled, loads
from ..remote_error import RemoteException
from ..tree import Envelope, numbered
from ..wire import SAME_VERSION, Kind, WireFrame

__all__ = ["ANSWERS_S", "Explain", "MeshCall", "Outcome", "outcome_of", "settled_as", "to_follow"]

ANSWERS_S = 0.25
_GRACE_S = 1.0

Outcome = WireFrame | MilkweedError
Explain = Callable[[int, MilkweedError, Callable[[MilkweedError], None]], None]
"""(position, what is known, tell): tells, soon, why the connection to the rank there was lost."""


class MeshCall:
    """Sent to all ranks when made. `on_outcome(position, outcome)` is called on the node's thread, once
    a rank.

    `expire` and `cancel` (any thread) ask the ranks that have not answered to end the call, and see to it
    that every rank has its outcome within some 1.5 s. `each` has a message for each rank, in place of one.
    """

    __slots__ = (
        *("_addresses", "_all", "_answered", "_explain", "_label", "_node"),
        *("_on_outcome", "_open", "_unsettled", "_why"),
    )

    def __init__(
        self,
        node: Node,
        label: str,
        addresses: Sequence[ProcAddress],
        message: Pickled,
        on_outcome: Callable[[int, Outcome], None],
        explain: Explain | None = None,
        *,
        each: Sequence[Pickled] | None = None,
    ) -> None:
        self._node = node
        self._label = label
        self._addresses = addresses
        self._on_outcome = on_outcome
        self._explain = explain
        self._why = ""
        self._all: asyncio.Event | None = None
        self._open: list[tuple[Connection, int] | None] = [None] * len(addresses)
        self._answered = bytearray(len(addresses))
        self._unsettled = len(addresses)
        for at, address in enumerate(addresses):
            try:
                connection = node.open_connection(address.socket)
                if connection is None or connection.is_closed:
                    connection = node.connection(address.socket, f"proc {address.proc}")
                if each is not None:
                    number = connection.send_call(each[at], partial(self._replied, at))
                elif previous := node.sent_by_tree.get(address.socket):
                    number = connection.send_call(
                        to_follow(previous, message), partial(self._replied_behind, previous, at)
                    )
                else:
                    number = connection.send_call(message, partial(self._replied, at))
            except Unavailable as error:
                self._replied(at, error)
                continue
            self._open[at] = (connection, number)

    def expire(self, deadline_s: float) -> None:
        """The deadline has passed."""
        self._end(f"did not end within {deadline_s:g} s")

    def cancel(self) -> None:
        self._end("was cancelled")

    def unanswered(self) -> tuple[str, ...]:
        """The procs that have not answered; any thread."""
        return tuple(one.proc for at, one in enumerate(self._addresses) if not self._answered[at])

    def _end(self, why: str) -> None:
        if not self._why:
            self._all = asyncio.Event()
            self._why = why
            self._node.start(self._end_rest())

    async def _end_rest(self) -> None:
        assert self._all is not None
        for connection, number in self._left().values():
            connection.send_cancel(number)
        for patience in (ANSWERS_S, _GRACE_S):
            if not self._left():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._all.wait()
            if not self._left():
                return
            if patience == ANSWERS_S:
                left = self._left().items()
                await asyncio.gather(*(self._cancel_aside(at, number) for at, (_, number) in left))
        for at, (connection, number) in self._left().items():
            connection.forget(number)
            self._replied(at, self._stuck(at))

    def _left(self) -> dict[int, tuple[Connection, int]]:
        return {at: one for at, one in enumerate(self._open) if one is not None and not self._answered[at]}

    async def _cancel_aside(self, at: int, number: int) -> None:
        """Over the control socket: the rank's loop does not come to read, or its main thread does not end."""
        request = {"op": "cancel", "sender": self._node.id, "call": number}
        with suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                reader, writer = await asyncio.open_unix_connection(self._addresses[at].control)
                try:
                    writer.write(json.dumps(request).encode() + b"\n")
                    await reader.readline()
                finally:
                    writer.close()

    def _replied_behind(self, previous: int, at: int, reply: Outcome) -> None:
        """What was sent before over a tree has arrived as well."""
        sent, socket = self._node.sent_by_tree, self._addresses[at].socket
        if isinstance(reply, WireFrame) and sent.get(socket) == previous:
            sent.pop(socket, None)
        self._replied(at, reply)

    def _replied(self, at: int, reply: Outcome) -> None:
        if self._answered[at]:
            return
        if isinstance(reply, MilkweedError) and reply.code == "connection_lost" and self._explain is not None:
            self._explain(at, reply, partial(self._settled, at))
        else:
            self._settled(at, reply)

    def _settled(self, at: int, outcome: Outcome) -> None:
        if self._answered[at]:
            return
        self._answered[at] = True
        self._unsettled -= 1
        if self._all is not None and not self._unsettled:
            self._node.loop.call_soon_threadsafe(self._all.set)
        if self._why and isinstance(outcome, WireFrame) and outcome.kind is Kind.ERROR:
            outcome = settled_as(outcome, self._label, self._why)
        self._on_outcome(at, outcome)

    def _stuck(self, at: int) -> Unavailable:
        proc = self._addresses[at].proc
        return Unavailable(
            "uncancellable",
            f"{self._label} {self._why} and does not end: proc {proc} is stuck in native code or is stopped",
            "Look at its stacks; end() of the slice of procs it is in ends it.",
        )


_NOTHING = b"\x80\x05N."


def settled_as(frame: WireFrame, label: str, why: str) -> Outcome:
    """Of an error while we end a call: an endpoint that was cancelled answers with nothing, and then what we
    wanted is what happened.
    """
    if bytes(frame.body) != _NOTHING:
        return frame
    code = "deadline_exceeded" if why.startswith("did not") else "cancelled"
    return Unavailable(code, f"{label} {why} and was ended", "Give it more time with within().")


def to_follow(previous: int, message: Pickled) -> Pickled:
    """A message to be sent directly, behind one that was sent over a tree."""
    return numbered(Envelope(0, previous, 0, time.monotonic_ns()), message)


def outcome_of(outcome: Outcome, where: Callable[[], str]) -> Any:
    """The value of a rank's outcome; `where` names rank and endpoint, if that is asked for.

    Raises:
        ActorError: what the endpoint raised. MilkweedError: why there is no answer.
    """
    if isinstance(outcome, MilkweedError):
        raise outcome
    try:
        value = loads(outcome.body, outcome.buffers)
    except Exception as error:
        raise ProtocolError(
            "unreadable_result",
            f"the result of {where()} cannot be made here: {type(error).__name__}: {error}",
            "Return plain data, or make its class importable on this side.",
        ) from error
    if outcome.kind is Kind.RESULT:
        return value
    if isinstance(value, RemoteException):
        raise value.error(where())
    if isinstance(value, MilkweedError):
        raise value
    if value is None:
        raise Unavailable("cancelled", f"{where()} was cancelled", "Call it again.")
    raise ProtocolError("protocol_error", f"{where()} answered with {value!r}", SAME_VERSION)
