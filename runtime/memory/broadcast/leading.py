"""Leads a broadcast: joins the receivers, tells them whom to take from, hears how far they are, ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from ...errors import MilkweedError, ProtocolError, Unavailable
from ...wire import SAME_VERSION
from ..handle import Handle, Machine
from . import chain as chains
from .chain import SOURCE, Chain, Event
from .line import Line
from .messages import Finish, Finished, Gone, Held, Join, Joined, Lost, Message, Take
from .outcome import Outcome, Received, Receiver
from .pieces import Pieces, piece_size
from .timing import FINISH_S, GIVE_UP_S, OPEN_S, PATIENCE_S, SILENT_S

__all__ = ["lead"]


OpenLine: TypeAlias = Callable[[Handle], Awaitable[Line]]


async def lead(
    source: Handle, receivers: Sequence[Receiver], open_line: OpenLine, timeout: float
) -> list[Outcome]:
    """One outcome a receiver; none of them writes to its buffer any more when it returns, or is cancelled,
    unless its process is stopped or cannot be reached.
    """
    leading = _Leading(source, receivers, open_line)
    return await leading.run(timeout)


class _Leading:
    def __init__(self, source: Handle, receivers: Sequence[Receiver], open_line: OpenLine) -> None:
        self._source = source
        self._receivers = receivers
        self._open_line = open_line
        self._pieces = Pieces(source.size, piece_size(source.size))
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._members = [
            _Member(at, receiver.handle, self._pieces, self._events, open_line)
            for at, receiver in enumerate(receivers)
        ]
        self._chain = _first_chain(source, receivers, self._pieces.count)
        self._started = time.monotonic()
        self._seconds: dict[int, float] = {}

    async def run(self, timeout: float) -> list[Outcome]:
        tasks = [asyncio.create_task(member.run()) for member in self._members]
        late = None
        try:
            async with asyncio.timeout(timeout):
                await self._decide()
        except TimeoutError:
            late = Unavailable(
                "deadline_exceeded",
                f"not all of the buffer was received within {timeout:g} s",
                "Give it a longer timeout.",
            )
        finally:
            await _ended(self._members, tasks)
        return [self._outcome(at, late) for at in range(len(self._members))]

    async def _decide(self) -> None:
        waited_until: float | None = None
        while not self._chain.over:
            left = None
            if not self._chain.begun and waited_until is not None:
                left = max(0.0, waited_until - time.monotonic())
            try:
                event = await asyncio.wait_for(self._events.get(), left)
            except TimeoutError:
                self._step(chains.Begin())
                continue
            self._step(event)
            if isinstance(event, chains.Ready) and waited_until is None:
                waited_until = time.monotonic() + PATIENCE_S
            if not self._chain.begun and self._chain.all_answered:
                self._step(chains.Begin())

    def _step(self, event: Event) -> None:
        self._chain, takes = chains.step(self._chain, event)
        if isinstance(event, chains.Whole):
            self._seconds.setdefault(event.member, time.monotonic() - self._started)
        for take in takes:
            upstream = self._source if take.upstream == SOURCE else self._members[take.upstream].offered
            if upstream is not None:
                self._members[take.member].take(take.upstream, upstream, self._receivers[take.member].only)

    def _outcome(self, at: int, late: MilkweedError | None) -> Outcome:
        member = self._chain.members[at]
        if member.phase == "whole":
            upstream = None if member.upstream in (None, SOURCE) else member.upstream
            return Received(upstream, self._members[at].transport, self._seconds[at])
        return (member.phase == "failed" and member.error) or late or _unknown()


def _unknown() -> Unavailable:
    return Unavailable("cancelled", "the broadcast was ended", "Begin it again.")


def _first_chain(source: Handle, receivers: Sequence[Receiver], pieces: int) -> Chain:
    numbers: dict[Machine, int] = {}
    hosts = [
        numbers.setdefault(handle.owner.machine, len(numbers))
        for handle in (source, *(receiver.handle for receiver in receivers))
    ]
    return chains.begin(hosts[1:], hosts[0], pieces)


class _Member:
    """The line to one receiver; what is heard on it goes into `events`."""

    def __init__(
        self, at: int, handle: Handle, pieces: Pieces, events: asyncio.Queue[Event], open_line: OpenLine
    ) -> None:
        self._at = at
        self._handle = handle
        self._pieces = pieces
        self._events = events
        self._open_line = open_line
        self._line: Line | None = None
        self.offered: Handle | None = None
        self.transport = ""

    def take(self, upstream: int, handle: Handle, only: str | None) -> None:
        if self._line is not None:
            self._line.send(Take(upstream, handle, only))

    def finish(self) -> bool:
        """Whether it is to be waited for: nothing was asked of it yet where there is no line."""
        if self._line is not None:
            self._line.send(Finish())
        return self._line is not None

    async def run(self) -> None:
        """Until the receiver has finished, or is gone."""
        try:
            await self._joined()
            assert self._line is not None
            await self._listen(self._line)
        except MilkweedError as error:
            self._events.put_nowait(chains.Out(self._at, error))
        finally:
            if self._line is not None:
                self._line.abort()

    async def _joined(self) -> None:
        try:
            async with asyncio.timeout(OPEN_S):
                self._line = await self._open_line(self._handle)
                self._line.send(Join(self._pieces.size, self._pieces.piece))
                answer = await self._line.receive()
        except TimeoutError:
            raise self._silent(OPEN_S) from None
        if not isinstance(answer, Joined):
            raise self._end_of(answer)
        self.offered = answer.buffer
        self._events.put_nowait(chains.Ready(self._at))

    async def _listen(self, line: Line) -> None:
        while True:
            match await self._heard(line):
                case Held(pieces, transport):
                    self.transport = transport
                    event = chains.Whole(self._at) if pieces == self._pieces.count else None
                    self._events.put_nowait(event or chains.Have(self._at, pieces))
                case Lost(upstream, error):
                    self._events.put_nowait(chains.Cut(self._at, upstream, error))
                case Finished():
                    return
                case other:
                    raise self._end_of(other)

    async def _heard(self, line: Line) -> Message | None:
        receiving = asyncio.create_task(line.receive())
        try:
            if (await asyncio.wait({receiving}, timeout=SILENT_S))[0]:
                return receiving.result()
            self._events.put_nowait(chains.Silent(self._at))
            if not (await asyncio.wait({receiving}, timeout=GIVE_UP_S - SILENT_S))[0]:
                self._events.put_nowait(chains.GivenUp(self._at, self._silent(GIVE_UP_S)))
                await asyncio.wait({receiving})
            message = receiving.result()
            self._events.put_nowait(chains.Heard(self._at))
            return message
        finally:
            receiving.cancel()

    def _silent(self, seconds: float) -> Unavailable:
        return Unavailable(
            "deadline_exceeded",
            f"{self._handle.owner}, which is to receive it, has said nothing for {seconds:g} s",
            "Look whether it is stopped, and at its stacks.",
        )

    def _end_of(self, message: Message | None) -> MilkweedError:
        if isinstance(message, Gone):
            return message.error
        if message is None:
            return Unavailable(
                "buffer_owner_lost",
                f"{self._handle.owner}, which was to receive it, has ended",
                "Look at why it did.",
            )
        return ProtocolError("protocol_error", f"{type(message).__name__} out of order", SAME_VERSION)


async def _ended(members: Sequence[_Member], tasks: Sequence[asyncio.Task[None]]) -> None:
    """Has every receiver stop, and waits until it has: for a while, cancelled or not."""
    for member, task in zip(members, tasks, strict=True):
        if not member.finish():
            task.cancel()
    left = time.monotonic() + FINISH_S
    cancelled = None
    pending = set(tasks)
    while pending and time.monotonic() < left:
        try:
            _, pending = await asyncio.wait(pending, timeout=max(0.0, left - time.monotonic()))
        except asyncio.CancelledError as error:
            cancelled = error
    for task in pending:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    if cancelled is not None:
        raise cancelled
