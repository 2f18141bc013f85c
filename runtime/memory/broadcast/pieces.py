"""A buffer in pieces: which are here, which can be had, which to ask for next. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

__all__ = ["Gathering", "Pieces", "piece_size"]

_PIECES = 256
_LEAST, _MOST = 256 * 1024, 4 * 1024 * 1024


def piece_size(size: int) -> int:
    """In bytes. A host is some pieces behind the one that it takes from: small ones keep a chain short, large
    ones what each of them costs.
    """
    return max(_LEAST, min(_MOST, -(-size // _PIECES)))


@dataclass(frozen=True, slots=True)
class Pieces:
    """`size` bytes in pieces of `piece`, of which the last may be shorter; numbered from 0.

    Raises:
        ValueError: there are no such pieces.
    """

    size: int
    piece: int

    def __post_init__(self) -> None:
        if self.size < 0 or self.piece <= 0:
            raise ValueError(f"{self.size} bytes in pieces of {self.piece}")

    @property
    def count(self) -> int:
        return -(-self.size // self.piece)

    def span(self, number: int) -> tuple[int, int]:
        """Offset and length of a piece."""
        at = number * self.piece
        return at, min(self.piece, self.size - at)


class Gathering:
    """What one receiver has of a buffer. A piece is asked for once at a time, the first ones first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._here = bytearray(count)
        self._missing = count
        self._offered: list[int] = []
        self._is_offered = bytearray(count)
        self._asked: set[int] = set()

    @property
    def have(self) -> int:
        return self.count - self._missing

    @property
    def is_whole(self) -> bool:
        return not self._missing

    def offer(self, numbers: Iterable[int]) -> None:
        """These can be had from now on.

        Raises:
            ValueError: there is no such piece.
        """
        for number in numbers:
            if not 0 <= number < self.count:
                raise ValueError(f"piece {number} of {self.count}")
            if not self._here[number] and not self._is_offered[number]:
                self._is_offered[number] = True
                heappush(self._offered, number)

    def take(self) -> int | None:
        """The piece to ask for next; None if there is none now."""
        if not self._offered:
            return None
        number = heappop(self._offered)
        self._asked.add(number)
        return number

    def arrived(self, number: int) -> bool:
        """Whether it was the last one that was missing.

        Raises:
            KeyError: it was not asked for.
        """
        self._asked.remove(number)
        self._here[number] = True
        self._missing -= 1
        return not self._missing

    def forget_offers(self) -> None:
        """Whoever offered is asked no more: what was asked for and did not arrive is missing again."""
        self._offered.clear()
        self._asked.clear()
        self._is_offered = bytearray(self.count)
