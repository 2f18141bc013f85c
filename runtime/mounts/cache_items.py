"""What a cache knows of a version that is read: which of its bytes are where."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from .direct import NOWHERE
from .manifest import FileRef
from .ranges import Ranges
from .readahead import Stream
from .source import Bytes

__all__ = ["Handle", "Item", "Piece", "in_memory"]


@dataclass(slots=True, eq=False)
class Piece:
    """A range that is fetched, or was a moment ago: with `data` from when it is done until it is dropped."""

    start: int
    end: int
    done: anyio.Event = field(default_factory=anyio.Event)
    data: Bytes | None = None
    error: Exception | None = None
    is_settled: bool = False
    """Written, or given up."""
    read: int = 0
    """Bytes that were read of it, those twice that were read twice."""


@dataclass(slots=True, eq=False)
class Handle:
    """An open cache file, closed when it is neither wanted nor written to any more. The loop's."""

    fd: int
    direct: int = NOWHERE
    base: int = 0
    """Where the version begins in it."""
    users: int = 1

    def release(self) -> None:
        self.users -= 1
        if not self.users:
            os.close(self.fd)
            if self.direct != NOWHERE:
                os.close(self.direct)


@dataclass(slots=True, eq=False)
class Item:
    file: FileRef
    stored: Ranges = field(default_factory=Ranges)
    pieces: list[Piece] = field(default_factory=list)
    stream: Stream = field(default_factory=Stream)
    handle: Handle | None = None
    losses: int = 0
    """How often all that was stored of it was dropped."""
    is_whole: bool = False

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """What is neither stored, nor in memory, nor on its way."""
        missing = Ranges()
        for gap in self.stored.missing(start, end):
            missing.add(*gap)
        for piece in self.pieces:
            missing.discard(piece.start, piece.end)
        return missing.parts()

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.release()


def in_memory(hot: Sequence[Piece], start: int) -> Piece | None:
    """One that has the byte at `start`."""
    for piece in hot:
        if piece.data is not None and piece.start <= start < piece.end:
            return piece
    return None
