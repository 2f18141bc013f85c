"""Which content a file has, as a number, and the mtime that hosts are shown for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from os import stat_result

from .manifest import FILE, Entry, split

__all__ = ["Ledger", "version_of"]

_MASK = (1 << 63) - 1
_SECOND_NS = 1_000_000_000
_MOST_KNOWN = 100_000


def version_of(found: stat_result, salt: int = 0) -> int:
    """The version of a file with this stat: the same as long as neither file nor stat change.

    Made of device, inode, ctime, mtime and size by Python's own hash of integers, which is the same in every
    process: a source that starts again gives the same versions. `salt` counts the changes that the stat did
    not show.
    """
    return (
        hash((found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size, salt)) & _MASK
        or 1
    )


class Ledger:
    """Presented mtimes: those of one path only grow, by a second at least with each new version.

    Else a `.pyc` that names its source by second and size, as Python's do, would fit two contents. What a
    path is shown with now stands in the manifest; here is what is not to be seen there: of paths that were
    removed, and of those shown with another mtime than they have.
    """

    def __init__(self, known: Mapping[bytes, tuple[int, int]] | None = None) -> None:
        self._known: OrderedDict[bytes, tuple[int, int]] = OrderedDict(known or {})

    def present(self, path: bytes, before: Entry | None, found: Entry) -> Entry:
        """The entry as hosts are shown it; `before` is what they were shown until now, `found` as it is."""
        if found.kind != FILE:
            return found
        if before is not None and before.kind == FILE:
            version, shown_ns = before.version, before.mtime_ns
        elif (known := self._known.get(path)) is not None:
            version, shown_ns = known
        else:
            return found
        if version == found.version:
            return found._replace(mtime_ns=shown_ns)
        if found.mtime_ns // _SECOND_NS > shown_ns // _SECOND_NS:
            return found
        moved_ns = (shown_ns // _SECOND_NS + 1) * _SECOND_NS + found.mtime_ns % _SECOND_NS
        self._remember(path, found.version, moved_ns)
        return found._replace(mtime_ns=moved_ns)

    def present_all(self, directories: Mapping[bytes, dict[bytes, Entry]]) -> None:
        """`present`, of a tree that nobody was shown yet: those entries that are known are set anew."""
        for path in tuple(self._known):
            directory, name = split(path)
            content = directories.get(directory, {})
            if (found := content.get(name)) is not None:
                content[name] = self.present(path, None, found)

    def removed(self, path: bytes, entry: Entry) -> None:
        """Its mtime is remembered: a new file of that name is shown with a later one."""
        if entry.kind == FILE:
            self._remember(path, entry.version, entry.mtime_ns)

    def to_keep(self, shown: Iterable[tuple[bytes, Entry]], now_ns: int) -> dict[bytes, tuple[int, int]]:
        """What a source that starts again is to be given, so that the rule holds across its lives.

        A file whose mtime is older than `now` cannot get the same second again by being written.
        """
        oldest_ns = (now_ns // _SECOND_NS - 1) * _SECOND_NS
        recent = {
            path: (entry.version, entry.mtime_ns)
            for path, entry in shown
            if entry.kind == FILE and entry.mtime_ns >= oldest_ns
        }
        return {**self._known, **recent}

    def _remember(self, path: bytes, version: int, mtime_ns: int) -> None:
        self._known[path] = (version, mtime_ns)
        self._known.move_to_end(path)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
