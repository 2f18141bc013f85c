"""A receiver of a broadcast: takes pieces from whom it is told to, and has them taken by others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from ...errors import MilkweedError, Unavailable
from ...node import Future
from .. import holding
from ..handle import Handle
from .arrivals import Arrivals
from .line import Line
from .messages import Finished, Gone, Held, Join, Lost, Message, Take, There, Watch
from .pieces import Gathering, Pieces
from .timing import BEAT_S, OPEN_S, SILENT_S

__all__ = ["Mover", "Station"]

_LANES = 3
_READ_S = 3600.0


class Mover(Protocol):
    """What a station needs of its process's memory."""

    async def open_line(self, handle: Handle) -> Line: ...

    def read(
        self, handle: Handle, dst: holding.Held, offset: int, length: int, only: str | None, timeout: float
    ) -> Future[None]: ...

    def way(self, handle: Handle, only: str | None) -> str:
        """By what it is read; empty if that is not known."""


class Station:
    """Lives as long as the line to whoever leads, on a loop of its own: no endpoint can hold it up.

    `check` raises what is wrong with the buffer that is filled. No piece is written when `run` has returned.
    """

    def __init__(
        self,
        mover: Mover,
        line: Line,
        join: Join,
        memory: holding.Held,
        check: Callable[[], None],
        arrivals: Arrivals,
    ) -> None:
        self._mover = mover
        self._line = line
        self._memory = memory
        self._check = check
        self._pieces = Pieces(join.size, join.piece)
        self._gathering = Gathering(self._pieces.count)
        self._arrivals = arrivals
        self._changed = asyncio.Condition()
        self._transport = ""

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                beats = group.create_task(self._beats())
                await self._obey()
                beats.cancel()
        except* MilkweedError as errors:
            self._line.send(Gone(_first(errors)))
        else:
            self._line.send(Finished())

    async def _obey(self) -> None:
        following: asyncio.Task[None] | None = None
        try:
            while isinstance(message := await self._line.receive(), Take):
                await _ended(following)
                self._gathering.forget_offers()
                following = asyncio.create_task(self._follow(message))
        finally:
            await _ended(following)

    async def _beats(self) -> None:
        """
        Raises:
            MilkweedError: the buffer was dropped.
        """
        while True:
            self._check()
            self._line.send(Held(self._gathering.have, self._transport))
            await asyncio.sleep(BEAT_S)

    async def _follow(self, take: Take) -> None:
        try:
            await self._take_all(take)
        except* MilkweedError as errors:
            self._line.send(Lost(take.member, _first(errors)))

    async def _take_all(self, take: Take) -> None:
        try:
            async with asyncio.timeout(OPEN_S):
                upstream = await self._mover.open_line(take.buffer)
        except TimeoutError:
            raise _silent(take.buffer, OPEN_S) from None
        self._transport = ""
        try:
            upstream.send(Watch())
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(upstream, take.buffer))
                lanes = [group.create_task(self._lane(take)) for _ in range(_LANES)]
                await asyncio.gather(*lanes)
                watching.cancel()
        finally:
            upstream.abort()
        self._line.send(Held(self._gathering.have, self._transport))

    async def _watch(self, upstream: Line, buffer: Handle) -> None:
        """
        Raises:
            MilkweedError: nothing can be taken from there any more.
        """
        while True:
            match await self._heard(upstream, buffer):
                case There(numbers, whole):
                    async with self._changed:
                        self._offer(buffer, range(self._pieces.count) if whole else numbers)
                        self._changed.notify_all()
                case Gone(error):
                    raise error
                case None:
                    raise Unavailable(
                        "buffer_owner_lost",
                        f"{buffer.owner}, which owns the buffer, has ended",
                        "Look at why it did.",
                    )
                case _:
                    raise _odd(buffer, "something else")

    def _offer(self, buffer: Handle, numbers: Iterable[int]) -> None:
        try:
            self._gathering.offer(numbers)
        except ValueError as error:
            raise _odd(buffer, str(error)) from None

    async def _heard(self, upstream: Line, buffer: Handle) -> Message | None:
        """Its next message. Pieces that come are a sign of life too, where they hold up what it says."""
        receiving = asyncio.create_task(upstream.receive())
        try:
            have = self._gathering.have
            while not (await asyncio.wait({receiving}, timeout=SILENT_S))[0]:
                if self._gathering.have == have:
                    raise _silent(buffer, SILENT_S)
                have = self._gathering.have
            return receiving.result()
        finally:
            receiving.cancel()

    async def _lane(self, take: Take) -> None:
        """Asks for one piece after the other, until all are here."""
        while (number := await self._next()) is not None:
            offset, length = self._pieces.span(number)
            part = self._memory.part(offset, length)
            try:
                await _moved(self._mover.read(take.buffer, part, offset, length, take.only, _READ_S))
            finally:
                part.release()
            self._transport = self._transport or self._mover.way(take.buffer, take.only)
            is_last = self._gathering.arrived(number)
            self._arrivals.add(number)
            if is_last:
                async with self._changed:
                    self._changed.notify_all()

    async def _next(self) -> int | None:
        """The next piece to ask for, when there is one; None when all are here."""
        async with self._changed:
            while (number := self._gathering.take()) is None and not self._gathering.is_whole:
                await self._changed.wait()
        return number


async def _moved(moving: Future[None]) -> None:
    """Waits for its end in any case: nothing is written behind a cancel."""
    try:
        await moving
    except asyncio.CancelledError:
        while not moving.done():
            with suppress(asyncio.CancelledError, MilkweedError):
                await moving
        raise


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Cancels it and waits for its end, though this task is cancelled too."""
    if task is None:
        return
    task.cancel()
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _first(errors: BaseExceptionGroup[MilkweedError]) -> MilkweedError:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def _silent(buffer: Handle, seconds: float) -> Unavailable:
    return Unavailable(
        "deadline_exceeded",
        f"{buffer.owner} has said nothing for {seconds:g} s",
        "Look whether it is stopped, and at its stacks.",
    )


def _odd(buffer: Handle, what: str) -> MilkweedError:
    return Unavailable("transfer_failed", f"{buffer.owner} told of {what}", "Look at its version.")
