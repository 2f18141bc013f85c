"""Which content a file has, as a number, and the mtime that hosts are shown for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from os import stat_result
from zlib import crc32

from .manifest import FILE, Entry, split

__all__ = ["Ledger", "mark_of", "version_of"]

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


def mark_of(path: bytes, entry: Entry) -> int:
    """What an entry adds to the digest of its tree, by XOR: a number that is the same in every process.

    Presented mtimes are no part of it: they follow from versions.
    """
    return hash((crc32(path), len(path), entry.kind, entry.mode, entry.version)) & _MASK


class Ledger:
    """Presented mtimes: those of one path only grow, by a second at least with each new version.

    Else a `.pyc` that names its source by second and size, as Python's do, would fit two contents. What a
    path is shown with now stands in the manifest; here is what is not to be seen there: of paths that were
    removed, and of those shown with another mtime than they have.
    """

    def __init__(self, known: Mapping[bytes, tuple[int, int]] | None = None) -> None:
        self._known: OrderedDict[bytes, tuple[int, int]] = OrderedDict(known or {})
        self._news: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def present(self, path: bytes, before: Entry | None, found: Entry) -> Entry:
        """The entry as hosts are shown it; `before` is what they were shown until now, `found` as it is."""
        shown = self._shown(path, before, found)
        if shown.kind == FILE and (before is None or before.version != shown.version):
            _put(self._news, path, (shown.version, shown.mtime_ns))
        return shown

    def _shown(self, path: bytes, before: Entry | None, found: Entry) -> Entry:
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
        _put(self._known, path, (found.version, moved_ns))
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
            for kept in (self._known, self._news):
                _put(kept, path, (entry.version, entry.mtime_ns))

    def take_news(self) -> dict[bytes, tuple[int, int]]:
        """What came to be shown, or was removed, since this was asked last: of each path the last."""
        news, self._news = self._news, OrderedDict()
        return dict(news)

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


def _put(kept: OrderedDict[bytes, tuple[int, int]], path: bytes, shown: tuple[int, int]) -> None:
    kept[path] = shown
    kept.move_to_end(path)
    while len(kept) > _MOST_KNOWN:
        kept.popitem(last=False)
