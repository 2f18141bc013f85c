"""What changed between two revisions of a tree, and the last of these changes, kept for who asks later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from .manifest import DIRECTORY, Change, Directory, Entry, Manifest, join

__all__ = ["Delta", "DeltaLog", "apply", "difference", "merged"]

_MOST_CHANGES = 200_000


class Delta(NamedTuple):
    """From revision `base` to `revision`: first `removed` go, with all below them, then `put` are set,
    directories before what is in them.
    """

    epoch: int
    base: int
    revision: int
    removed: tuple[bytes, ...] = ()
    put: tuple[tuple[bytes, Entry], ...] = ()

    @property
    def changes(self) -> int:
        return len(self.removed) + len(self.put)


def apply(manifest: Manifest, delta: Delta) -> list[Change]:
    """Changes the manifest, and tells how; the root's own change has empty directory and name."""
    changes: list[Change] = []
    for path in delta.removed:
        changes += manifest.remove(path)
    for path, entry in delta.put:
        if not path:
            changes.append(Change(b"", b"", manifest.root, entry))
        if entry.kind != DIRECTORY and path in manifest.directories:
            changes += manifest.remove(path)
        if (change := manifest.put(path, entry)) is not None and change.before != change.after:
            changes.append(change)
    manifest.revision = delta.revision
    return changes


def merged(deltas: Iterable[Delta]) -> Delta:
    """One delta in place of several that follow one another, of which there is at least one."""
    first, *rest = deltas
    removed, put = dict.fromkeys(first.removed), dict(first.put)
    last = first
    for last in rest:
        gone = set(last.removed)
        if gone and put:
            put = {path: entry for path, entry in put.items() if not _is_within(path, gone)}
        removed.update(dict.fromkeys(last.removed))
        put.update(last.put)
    return Delta(first.epoch, first.base, last.revision, tuple(removed), tuple(sorted(put.items())))


def _is_within(path: bytes, gone: set[bytes]) -> bool:
    while path:
        if path in gone:
            return True
        path = path.rpartition(b"/")[0]
    return False


def difference(old: Manifest, new: Manifest) -> Delta:
    """What makes `old` look like `new`."""
    removed: list[bytes] = []
    put: list[tuple[bytes, Entry]] = [] if old.root == new.root else [(b"", new.root)]
    _compare(old, new, b"", removed, put)
    return Delta(new.epoch, old.revision, new.revision, tuple(removed), tuple(put))


def _compare(
    old: Manifest, new: Manifest, path: bytes, removed: list[bytes], put: list[tuple[bytes, Entry]]
) -> None:
    before: Directory = old.directories.get(path, {})
    after: Directory = new.directories.get(path, {})
    for name, entry in before.items():
        found = after.get(name)
        if found is None or (entry.kind == DIRECTORY) != (found.kind == DIRECTORY):
            removed.append(join(path, name))
    for name, entry in after.items():
        if before.get(name) != entry:
            put.append((join(path, name), entry))
        if entry.kind == DIRECTORY:
            _compare(old, new, join(path, name), removed, put)


class DeltaLog:
    """The last deltas of one source, each beginning where the one before ended."""

    def __init__(self, most_changes: int = _MOST_CHANGES) -> None:
        self._deltas: deque[Delta] = deque()
        self._changes = 0
        self._most_changes = most_changes

    def add(self, delta: Delta) -> None:
        self._deltas.append(delta)
        self._changes += delta.changes
        while self._changes > self._most_changes and len(self._deltas) > 1:
            self._changes -= self._deltas.popleft().changes

    def since(self, revision: int) -> Delta | None:
        """All that came after a revision, as one; None where that is not known any more."""
        wanted = [delta for delta in self._deltas if delta.base >= revision]
        if not wanted or wanted[0].base != revision:
            return None
        return wanted[0] if len(wanted) == 1 else merged(wanted)
