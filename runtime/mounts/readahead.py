"""Which bytes to fetch for a read, and which before they are asked for.

A file that is read from its start in order is fetched in pieces that grow; a read at a place of its own moves
little more than itself.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALIGN", "WHOLE", "Stream", "pieces", "plan"]

ALIGN = 128 * 1024
"""What the kernel asks for at once, at most times: pieces begin and end at multiples of it."""
WHOLE = 1024 * 1024
"""A file of at most so many bytes is fetched whole."""
_LARGEST = 4 * 1024 * 1024
_AHEAD = 2 * _LARGEST


@dataclass(frozen=True, slots=True)
class Stream:
    """How a file has been read: up to where in order, and for how many bytes so."""

    end: int = 0
    length: int = 0

    def after(self, offset: int, length: int) -> Stream:
        """Reads in order may overtake one another a little."""
        if abs(offset - self.end) <= 8 * ALIGN:
            return Stream(max(self.end, offset + length), self.length + length)
        return Stream(offset + length, length)


def plan(stream: Stream, size: int, offset: int, length: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two ranges: what is needed now, and what to fetch besides, after it; either may be empty.

    `stream` is what is known after this read.
    """
    if size <= WHOLE:
        return (0, size), (size, size)
    end = min(offset + length, size)
    start = offset - offset % ALIGN
    needed = min(size, end + -end % ALIGN)
    if stream.length <= length:
        return (start, needed), (needed, needed)
    # The end of what is read ahead moves in steps of a piece: else each read would fetch a little more.
    step = min(_LARGEST, max(ALIGN, 1 << stream.length.bit_length() - 1))
    until = needed + min(_AHEAD, stream.length)
    return (start, needed), (needed, min(size, until + -until % step))


def pieces(start: int, end: int, largest: int = _LARGEST) -> list[tuple[int, int]]:
    """A range in pieces to be fetched one by one; they begin at multiples of the largest where they can."""
    cut = []
    while start < end:
        stop = min(end, start - start % largest + largest)
        cut.append((start, stop))
        start = stop
    return cut
