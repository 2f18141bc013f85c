"""Which cached versions go when there are more bytes than the limit."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Usage"]


class Usage:
    """Bytes of each version, from the one that was longest not used to the latest."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._open: dict[int, int] = {}

    def __contains__(self, version: int) -> bool:
        return version in self._sizes

    def used(self, version: int, added: int = 0) -> None:
        """It was used just now, and has so many bytes more."""
        self._sizes[version] = self._sizes.get(version, 0) + added
        self._sizes.move_to_end(version)
        self.total += added

    def found(self, version: int, size: int) -> None:
        """It was left by an earlier life: the first to go."""
        if version not in self._sizes:
            self._sizes[version] = size
            self._sizes.move_to_end(version, last=False)
            self.total += size

    def opened(self, version: int) -> None:
        self._open[version] = self._open.get(version, 0) + 1

    def closed(self, version: int) -> None:
        left = self._open.get(version, 0) - 1
        if left > 0:
            self._open[version] = left
        else:
            self._open.pop(version, None)

    def removed(self, version: int) -> None:
        self.total -= self._sizes.pop(version, 0)

    def victims(self, room: int = 0, lacking: int = 0) -> list[int]:
        """Those that must go so that `room` bytes more fit: first what no program has open, oldest first.

        `lacking` is what the disk lacks for them; nothing goes for that where all that there is would not do.
        They count until they are `removed`.
        """
        excess = max(self.total + room - self.limit, lacking if lacking <= self.total else 0)
        chosen: list[int] = []
        for wants_open in (False, True):
            for version, size in self._sizes.items():
                if excess <= 0:
                    return chosen
                if (version in self._open) is wants_open and size:
                    chosen.append(version)
                    excess -= size
        return chosen
