"""Which bytes of a file are there: ranges that do not touch, in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["Ranges"]


class Ranges:
    """A set of bytes, as half-open ranges."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """How many bytes are in it."""
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def discard(self, start: int, end: int) -> None:
        """Takes them out, as far as they are in it."""
        if start >= end:
            return
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        if first >= last:
            return
        left = [(self._starts[first], start)] if self._starts[first] < start else []
        right = [(end, self._ends[last - 1])] if self._ends[last - 1] > end else []
        kept = left + right
        self._starts[first:last] = [one for one, _ in kept]
        self._ends[first:last] = [one for _, one in kept]

    def parts(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    def end_of(self, start: int) -> int:
        """Up to where all bytes from `start` on are in it; `start` itself, where that one is not."""
        at = bisect_right(self._starts, start) - 1
        return max(start, self._ends[at]) if at >= 0 else start

    def has(self, start: int, end: int) -> bool:
        """Whether all of these bytes are in it."""
        return start >= end or not self.missing(start, end)

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of a range is not in it."""
        gaps = []
        at = bisect_right(self._ends, start)
        while start < end:
            if at == len(self._starts) or self._starts[at] >= end:
                gaps.append((start, end))
                break
            if self._starts[at] > start:
                gaps.append((start, self._starts[at]))
            start = max(start, self._ends[at])
            at += 1
        return gaps
