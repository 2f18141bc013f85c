"""Which content a file has, as a number, and the mtime that hosts are shown for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from os import stat_result
from typing import TypeVar
from zlib import crc32

from .manifest import FILE, Entry, split

__all__ = ["Ledger", "mark_of", "version_of"]

_MASK = (1 << 63) - 1
_SECOND_NS = 1_000_000_000
_MOST_KNOWN = 100_000
_T = TypeVar("_T")


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
    """Presented mtimes: no two versions of one path are shown with the same second and the same size, and
    its seconds only grow.

    Else a `.pyc` that names its source by second and size, as Python's do, would fit two contents. Within a
    second versions of other sizes are shown as they are: an installer writes a file in several steps, each of
    them a version, and the `.pyc` that it makes is to fit on the hosts too. What a path is shown with now
    stands in the manifest; here is what is not to be seen there: of paths that were removed, and of those
    shown with another mtime than they have.
    """

    def __init__(self, known: Mapping[bytes, tuple[int, int]] | None = None) -> None:
        self._known: OrderedDict[bytes, tuple[int, int]] = OrderedDict(known or {})
        self._news: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._sizes: OrderedDict[bytes, tuple[int, frozenset[int]]] = OrderedDict()
        """By path: the second that it was shown with last, and all sizes that it had in that."""

    def present(self, path: bytes, before: Entry | None, found: Entry) -> Entry:
        """The entry as hosts are shown it; `before` is what they were shown until now, `found` as it is."""
        was_shown = before is None and self._known.get(path, (0, 0))[0] == found.version
        shown = self._shown(path, before, found)
        if shown.kind == FILE and (before is None or before.version != shown.version):
            _put(self._news, path, (shown.version, shown.mtime_ns))
            if not was_shown:  # else by an earlier life, and perhaps others of its second before it
                second = shown.mtime_ns // _SECOND_NS
                last, sizes = self._sizes.get(path, (second, frozenset()))
                before_it = sizes if last == second else frozenset()
                _put(self._sizes, path, (second, before_it | {shown.size}))
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
        second, last = found.mtime_ns // _SECOND_NS, shown_ns // _SECOND_NS
        if second > last:
            return found
        if self._had(path, last, found.size):
            last += 1
        elif second == last:
            return found
        moved_ns = last * _SECOND_NS + found.mtime_ns % _SECOND_NS
        _put(self._known, path, (found.version, moved_ns))
        return found._replace(mtime_ns=moved_ns)

    def _had(self, path: bytes, second: int, size: int) -> bool:
        """Whether a version may have been shown with these; nobody knows what an earlier life has shown."""
        known, sizes = self._sizes.get(path, (-1, frozenset()))
        return known != second or size in sizes

    def present_all(self, directories: Mapping[bytes, dict[bytes, Entry]]) -> None:
        """`present`, of a tree that nobody was shown yet: those entries that are known are set anew."""
        for path in tuple(self._known):
            directory, name = split(path)
            content = directories.get(directory, {})
            if (found := content.get(name)) is not None:
                content[name] = self.present(path, None, found)

    def removed(self, path: bytes, entry: Entry) -> None:
        """Its mtime is remembered: a new file of that name is shown with another."""
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


def _put(kept: OrderedDict[bytes, _T], path: bytes, shown: _T) -> None:
    kept[path] = shown
    kept.move_to_end(path)
    while len(kept) > _MOST_KNOWN:
        kept.popitem(last=False)
