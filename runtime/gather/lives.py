"""What was told of directories lately, and whether to ask for a whole one again. Pure: times are given."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from .attributes import Attributes, Page

__all__ = ["MOST_ENTRIES", "Lives"]

MOST_ENTRIES: Final = 200_000
"""Of all directories that are remembered."""
_WORTH_IT = 8
_REMEMBERED_S = 30.0

Directory = tuple[int, bytes]
"""A host, and the path below what is shown of it."""


@dataclass(slots=True)
class _Listed:
    at: float
    names: list[bytes]
    entries: dict[bytes, Attributes]
    asked: int = 0


class Lives:
    """Directories as they were listed: believed for `life_s`, and remembered for longer, since who asks for
    many of a directory's entries one after another is better served by all of them.
    """

    def __init__(self, life_s: float) -> None:
        self.life_s = life_s
        self._listed: OrderedDict[Directory, _Listed] = OrderedDict()
        self._entries = 0

    def listed(self, directory: Directory, page: Page, now: float) -> None:
        self.forget(directory)
        self._listed[directory] = _Listed(now, [name for name, _ in page.entries], dict(page.entries))
        self._entries += _weight(self._listed[directory])
        while self._entries > MOST_ENTRIES and len(self._listed) > 1:
            self.forget(next(iter(self._listed)))

    def forget(self, directory: Directory) -> None:
        if (old := self._listed.pop(directory, None)) is not None:
            self._entries -= _weight(old)

    def find(self, directory: Directory, name: bytes, now: float) -> tuple[Attributes, float] | None:
        """What is believed of an entry, and for how many seconds more; None: nothing is."""
        listed = self._listed.get(directory)
        if listed is None:
            return None
        listed.asked += 1
        left = listed.at + self.life_s - now
        found = listed.entries.get(name)
        return (found, left) if found is not None and left > 0 else None

    def remembered(self, directory: Directory) -> tuple[list[bytes], dict[bytes, Attributes]] | None:
        """As it was listed last, its names in order; not to be relied on."""
        listed = self._listed.get(directory)
        return None if listed is None else (listed.names, listed.entries)

    def is_worth_listing(self, directory: Directory, now: float) -> bool:
        """Whether to ask for all of it rather than for one entry."""
        listed = self._listed.get(directory)
        if listed is None:
            return False
        if now - listed.at > _REMEMBERED_S:
            self.forget(directory)
            return False
        return listed.asked >= max(_WORTH_IT, len(listed.entries) // 64)


def _weight(listed: _Listed) -> int:
    """An empty directory takes room too."""
    return max(1, len(listed.entries))
