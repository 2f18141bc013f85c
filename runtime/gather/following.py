"""Which small files to fetch beside one that is opened: those that come after it in its directory. Pure.

Who opens the second of a directory, in the order of names, will open more of them; each time that one has to
be waited for, more come along.
"""

from __future__ import annotations

import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .attributes import Attributes

__all__ = ["SMALL", "Following"]

SMALL: Final = 64 * 1024
"""The largest file that comes whole when it is opened."""
_FIRST_BATCH = 8
_LARGEST_BATCH = 64
_MOST_BYTES = 1024 * 1024
_MOST_DIRECTORIES = 64
_NEAR = 4

Directory = tuple[int, bytes]


@dataclass(slots=True)
class _Reader:
    """`at`: where the next one that it opens is expected."""

    at: int
    batch: int = 0


class Following:
    def __init__(self) -> None:
        self._readers: OrderedDict[Directory, _Reader] = OrderedDict()

    def after(
        self, directory: Directory, name: bytes, names: Sequence[bytes], entries: Mapping[bytes, Attributes]
    ) -> list[bytes]:
        """Names of files to fetch with this one, which was not there yet; `names` are sorted."""
        at = bisect_right(names, name)
        reader = self._readers.get(directory)
        self._readers[directory] = made = _Reader(at)
        self._readers.move_to_end(directory)
        if len(self._readers) > _MOST_DIRECTORIES:
            self._readers.popitem(last=False)
        if reader is None or not 0 <= at - reader.at <= _NEAR:
            return []
        made.batch = min(_LARGEST_BATCH, 2 * reader.batch) or _FIRST_BATCH
        found: list[bytes] = []
        size = 0
        while made.at < len(names) and len(found) < made.batch and size < _MOST_BYTES:
            one = entries[names[made.at]]
            if stat.S_ISREG(one.mode) and 0 < one.size <= SMALL:
                found.append(names[made.at])
                size += one.size
            made.at += 1
        return found
