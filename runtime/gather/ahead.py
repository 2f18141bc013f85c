"""Bytes of a file that is read in order, before they are asked for; a read elsewhere moves itself alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ..mounts.readahead import Stream

__all__ = ["PIECE", "Ahead"]

PIECE: Final = 2 * 1024 * 1024
_LEAST = 512 * 1024
_PIECES = 3

Bytes = bytes | memoryview
Fetch = Callable[[int, int], Awaitable[Bytes]]


class _Piece:
    def __init__(self, fetch: Fetch, start: int) -> None:
        self.start = start
        self.at = time.monotonic()
        self.task = asyncio.ensure_future(fetch(start, PIECE))
        self.task.add_done_callback(_seen)


def _seen(task: asyncio.Future[Bytes]) -> None:
    """Who reads there is told what is wrong, and perhaps nobody does."""
    if not task.cancelled():
        task.exception()


class Ahead:
    """Of one open file. What was fetched is believed for `life_s`, and only where it is whole: the end of a
    file that grows is asked for each time.
    """

    def __init__(self, fetch: Fetch, life_s: float) -> None:
        self._fetch = fetch
        self._life_s = life_s
        self._stream = Stream()
        self._pieces: dict[int, _Piece] = {}

    async def read(self, offset: int, length: int, size: int) -> Bytes:
        """A range, of a file that is said to have this size.

        Raises:
            OSError: what the fetch raised.
        """
        self._stream = self._stream.after(offset, length)
        if self._stream.length >= max(_LEAST, 2 * length):
            start = offset - offset % PIECE
            self._forget_before(start)
            for at in range(start, min(start + _PIECES * PIECE, size - PIECE + 1), PIECE):
                if at not in self._pieces:
                    self._pieces[at] = _Piece(self._fetch, at)
        parts = []
        end = offset + length
        while offset < end:
            part = await self._part(offset, end)
            parts.append(part)
            offset += len(part)
            if not part or offset % PIECE:  # the file ends there
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _part(self, offset: int, end: int) -> Bytes:
        piece = self._pieces.get(offset - offset % PIECE)
        if piece is not None:
            if piece.at > time.monotonic() - self._life_s:
                try:
                    data = await asyncio.shield(piece.task)
                except OSError:
                    self._pieces.pop(piece.start, None)
                    raise
                if len(data) == PIECE:
                    return data[offset - piece.start : end - piece.start]
            self._pieces.pop(piece.start, None)
        following = offset - offset % PIECE + PIECE
        if following in self._pieces:
            end = min(end, following)
        return await self._fetch(offset, end - offset)

    def _forget_before(self, start: int) -> None:
        """But for the one before: the kernel's requests overtake one another."""
        for at in [at for at in self._pieces if not start - PIECE <= at < start + _PIECES * PIECE]:
            self._pieces.pop(at)

    async def close(self) -> None:
        pieces, self._pieces = self._pieces, {}
        for piece in pieces.values():
            piece.task.cancel()
        for piece in pieces.values():
            with suppress(asyncio.CancelledError, OSError):
                await piece.task
