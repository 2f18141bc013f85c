"""The owner's end of conversations about its buffers: with who takes a buffer, with who has one filled."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from ...errors import Conflict, InvalidArgument, MilkweedError, ProtocolError
from ...wire import SAME_VERSION
from ..handle import READ, WRITE, Handle
from ..here import this_process
from ..holding import Held
from ..regions import Region, Regions
from ..streams import receive, send
from .arrivals import Arrivals
from .line import Line, taken_over
from .messages import Gone, Join, Joined, Message, There, Watch, pack, unpack
from .sealing import HEAD_BYTES, Opener, Sealer
from .station import Mover, Station
from .timing import BEAT_S, OPEN_S, SILENT_S

__all__ = ["Desk", "Registrar"]


class Registrar(Mover, Protocol):
    """The memory of the process, which registers what receivers offer to others."""

    @property
    def regions(self) -> Regions: ...

    def register(self, memory: Held, rights: int) -> Handle: ...

    def drop(self, handle: Handle, timeout: float) -> object: ...


class Desk:
    """Each conversation has the thread that serves its socket."""

    def __init__(self, memory: Registrar) -> None:
        self._memory = memory
        self._arrivals: dict[tuple[int, int], Arrivals] = {}
        self._no_arrivals = Arrivals()

    def talk(self, sock: socket.socket, sealer: Sealer, opener: Opener, region: Region) -> None:
        """Returns when it is over.

        Raises:
            ProtocolError: what comes is not the peer's. OSError: it has left.
        """
        deadline = time.monotonic() + OPEN_S
        head = receive(sock, HEAD_BYTES, deadline=deadline)
        message = unpack(opener.open(head, receive(sock, Opener.rest(head), deadline=deadline)))
        if isinstance(message, Watch):
            self._tell(sock, sealer, region)
        elif isinstance(message, Join):
            asyncio.run(self._receive(sock, sealer, opener, region, message))
        else:
            raise ProtocolError("protocol_error", f"a talk that begins with {message}", SAME_VERSION)

    def end(self) -> None:
        """Nobody is told any more."""
        for arrivals in (self._no_arrivals, *tuple(self._arrivals.values())):
            arrivals.end()

    def _tell(self, sock: socket.socket, sealer: Sealer, region: Region) -> None:
        """What is there, and again and again that it still is. It holds up no drop."""

        def say(message: Message) -> None:
            send(sock, sealer.seal(pack(message)), idle=SILENT_S)

        if not region.rights & READ:
            say(Gone(_refused("read")))
            return
        arrivals = self._arrivals.get((region.slot, region.generation))
        if arrivals is None:
            arrivals = self._no_arrivals  # it is not being filled
            say(There(whole=True))
        told = 0
        while region.is_live and not arrivals.ended:
            more = arrivals.after(told, BEAT_S)
            told += len(more)
            say(There(more))
        say(Gone(_dropped()))

    @contextmanager
    def filling(self, buffer: Handle) -> Iterator[Arrivals]:
        """A buffer of this process of which only what arrives is there, as others are told, in the block."""
        arrivals = self._arrivals[buffer.slot, buffer.generation] = Arrivals()
        try:
            yield arrivals
        finally:
            del self._arrivals[buffer.slot, buffer.generation]
            arrivals.end()

    async def _receive(
        self, sock: socket.socket, sealer: Sealer, opener: Opener, region: Region, join: Join
    ) -> None:
        line = await taken_over(sock, sealer, opener)
        entered = None
        try:
            _check(region, join)
            entered = self._memory.regions.enter(region.slot, region.generation)
            if entered is None:
                raise _dropped()
            await self._fill(line, entered, join)
        except MilkweedError as error:
            line.send(Gone(error))
        finally:
            if entered is not None:
                self._memory.regions.leave(entered)
            await line.close()

    async def _fill(self, line: Line, region: Region, join: Join) -> None:
        """
        Raises:
            Conflict: too_many_buffers.
        """
        part = region.memory.part(0, join.size)
        offered = self._memory.register(part, READ)
        try:
            with self.filling(offered) as arrivals:
                line.send(Joined(offered))
                check = partial(_check, region, join)
                await Station(self._memory, line, join, part, check, arrivals).run()
        finally:
            self._memory.drop(offered, OPEN_S)  # those who read it meanwhile are not waited for here


def _check(region: Region, join: Join) -> None:
    """
    Raises:
        MilkweedError: it cannot be filled (any more).
    """
    if not region.is_live:
        raise _dropped()
    if not region.rights & WRITE:
        raise _refused("write to")
    if not 0 <= join.size <= region.memory.size or join.piece <= 0:
        raise InvalidArgument(
            "out_of_range",
            f"{join.size} bytes for a buffer of {this_process()} with {region.memory.size}",
            "Give buffers that are as large.",
        )


def _dropped() -> Conflict:
    return Conflict("buffer_dropped", f"the buffer was dropped by {this_process()}", "Ask it for another.")


def _refused(what: str) -> Conflict:
    return Conflict(
        "access_refused",
        f"the {what} a buffer of {this_process()} is not among its rights",
        "Its owner says which, when it makes it.",
    )
