"""What a tree looks like at one revision: names, modes, sizes, presented mtimes, versions, symlink targets.

Paths are bytes relative to the root, parts joined by `/`, the root itself `b""`. A manifest knows no file
system: it is filled by a scan, changed by deltas, and the same on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["DIRECTORY", "FILE", "LINK", "Change", "Entry", "FileRef", "Manifest", "join", "split"]

FILE: Final = 1
DIRECTORY: Final = 2
LINK: Final = 3


class Entry(NamedTuple):
    """One name: `mode` are permission bits, `version` is 0 for directories, `target` empty but for links."""

    kind: int
    mode: int
    size: int
    mtime_ns: int
    version: int
    target: bytes = b""


class FileRef(NamedTuple):
    """One content of one file. `path` is where it was last; the version alone says what its bytes are."""

    path: bytes
    version: int
    size: int


class Change(NamedTuple):
    """What applying a delta did to one name; None: it was not there, or is not any more."""

    directory: bytes
    name: bytes
    before: Entry | None
    after: Entry | None


Directory = dict[bytes, Entry]


def join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def split(path: bytes) -> tuple[bytes, bytes]:
    """The directory and the name; of the root, twice nothing."""
    directory, _, name = path.rpartition(b"/")
    return directory, name


@dataclass(slots=True)
class Manifest:
    """`directories` has the content of each directory by its path; every directory but the root also has an
    entry in the one above it.
    """

    epoch: int = 0
    revision: int = 0
    root: Entry = field(default_factory=lambda: Entry(DIRECTORY, 0o755, 0, 0, 0))
    directories: dict[bytes, Directory] = field(default_factory=lambda: {b"": {}})

    def __len__(self) -> int:
        """Of all entries, without the root."""
        return sum(map(len, self.directories.values()))

    def entry(self, path: bytes) -> Entry | None:
        if not path:
            return self.root
        directory, name = split(path)
        return self.directories.get(directory, {}).get(name)

    def at(self, directory: bytes, name: bytes) -> Entry | None:
        return self.directories.get(directory, {}).get(name)

    def walk(self) -> Iterator[tuple[bytes, Entry]]:
        """All entries, each directory's after that of the directory itself."""
        for directory in sorted(self.directories):
            for name, entry in self.directories[directory].items():
                yield join(directory, name), entry

    def younger(self, than_ns: int) -> Iterator[tuple[bytes, Entry]]:
        """Entries whose mtime is not older than that; far faster than a walk."""
        for directory, content in self.directories.items():
            for name, entry in content.items():
                if entry[3] >= than_ns:
                    yield join(directory, name), entry

    def put(self, path: bytes, entry: Entry) -> Change | None:
        """Sets one entry; a directory keeps what is in it. None: it is the root, or has no directory."""
        if not path:
            self.root = entry
            return None
        parent, name = split(path)
        directory = self.directories.get(parent)
        if directory is None:
            return None
        before = directory.get(name)
        if before is not None and before.kind == DIRECTORY != entry.kind:
            self.remove(path)
        if entry.kind == DIRECTORY:
            self.directories.setdefault(path, {})
        directory[name] = entry
        return Change(parent, name, before, entry)

    def remove(self, path: bytes) -> list[Change]:
        """Removes an entry and all below it: what was deepest comes first."""
        parent, name = split(path)
        entry = self.directories.get(parent, {}).pop(name, None)
        if entry is None:
            return []
        changes = [Change(parent, name, entry, None)]
        waiting = [path] if entry.kind == DIRECTORY else []
        while waiting:
            directory = waiting.pop()
            for name, entry in self.directories.pop(directory, {}).items():
                changes.append(Change(directory, name, entry, None))
                if entry.kind == DIRECTORY:
                    waiting.append(join(directory, name))
        return changes[::-1]
