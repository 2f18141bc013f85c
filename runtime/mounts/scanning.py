"""What is in a directory of this machine, as entries with their own mtimes. Blocks: call it in a thread.

Never followed: symlinks, and what is mounted below the root. Left out, and said: names that the rules
exclude, FIFOs, sockets and devices, other file systems.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from .excludes import DEFAULT, IGNORE_FILE, Excluded, Rules
from .manifest import DIRECTORY, FILE, LINK, Directory, Entry, join, split
from .versions import version_of

__all__ = ["Place", "Salts", "Scanned", "counted", "look", "rules_of", "scan"]

_SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MOST_LINKED = 2_000
_MOST_COUNTED = 200_000

Salts = Mapping[tuple[int, int], int]
"""By device and inode: how often a content changed though its stat did not."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tree to look at: an absolute path in bytes, its device, what is left out, the salts of its files."""

    root: bytes
    device: int
    rules: Rules
    salts: Salts = field(default_factory=dict)
    linked: set[bytes] = field(default_factory=set)
    """Files with more names than one, which may be written to where nobody watches; 2,000 at most."""

    def absolute(self, path: bytes) -> bytes:
        return join(self.root, path) if path else self.root


@dataclass(slots=True)
class Scanned:
    """What a subtree holds: its directories' contents by path, and what is not in them."""

    directories: dict[bytes, Directory] = field(default_factory=dict)
    excluded: list[Excluded] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)


def look(place: Place, path: bytes) -> Entry | Excluded | None:
    """One name as it is now; None: it is not there."""
    absolute = place.absolute(path)
    place.linked.discard(path)
    try:
        found = os.lstat(absolute)
        is_directory = stat.S_ISDIR(found.st_mode)
        if path and (rule := place.rules.excluding(path, split(path)[1], is_directory)) is not None:
            return Excluded(path, rule)
        return _entry(place, path, absolute, found)
    except OSError:
        return None


def scan(place: Place, top: bytes, on_directory: Callable[[bytes], None] | None = None) -> Scanned:
    """Everything at and below a directory; `on_directory` is called for each before it is looked at."""
    scanned = Scanned()
    waiting = [top]
    while waiting:
        path = waiting.pop()
        if on_directory is not None:
            on_directory(path)
        content, below = _listed(place, path, scanned)
        scanned.directories[path] = content
        waiting += below
    return scanned


def _listed(place: Place, path: bytes, scanned: Scanned) -> tuple[Directory, list[bytes]]:
    content: Directory = {}
    below: list[bytes] = []
    excluding, prefix = place.rules.excluding, path + b"/" if path else b""
    try:
        names = os.scandir(place.absolute(path))
    except OSError:
        scanned.unreadable.append(path)
        return content, below
    with names:
        for found in names:
            name = found.name
            inside = prefix + name
            try:
                is_directory = found.is_dir(follow_symlinks=False)
                if (rule := excluding(inside, name, is_directory)) is not None:
                    scanned.excluded.append(Excluded(inside, rule))
                    continue
                entry = _entry(place, inside, found.path, found.stat(follow_symlinks=False))
            except PermissionError:  # a directory that may be listed, and not entered
                scanned.unreadable.append(path)
                break
            except OSError:  # it went while we looked
                continue
            if isinstance(entry, Excluded):
                scanned.excluded.append(entry)
                continue
            content[name] = entry
            if entry.kind == DIRECTORY:
                below.append(inside)
    return content, below


def _entry(place: Place, path: bytes, absolute: bytes, found: os.stat_result) -> Entry | Excluded:
    mode = found.st_mode
    if mode & 0o170000 == stat.S_IFREG:
        salt = place.salts.get((found.st_dev, found.st_ino), 0) if place.salts else 0
        if found.st_nlink > 1 and len(place.linked) < _MOST_LINKED:
            place.linked.add(path)
        return Entry(FILE, mode & 0o7777, found.st_size, found.st_mtime_ns, version_of(found, salt))
    if stat.S_ISDIR(mode):
        if found.st_dev != place.device:
            return Excluded(path, "another file system")
        return Entry(DIRECTORY, mode & 0o7777, 0, found.st_mtime_ns, 0)
    if stat.S_ISLNK(mode):
        target = os.readlink(absolute)
        return Entry(LINK, 0o777, len(target), found.st_mtime_ns, version_of(found), target)
    return Excluded(path, _SPECIAL.get(stat.S_IFMT(mode), "no ordinary file"), 1, 0)


def rules_of(root: Path, more: Iterable[bytes] = ()) -> tuple[bytes, ...]:
    """The default rules, those of its `.milkweedignore`, and `more`; the last that fits decides."""
    try:
        own = (os.fsencode(root) + b"/" + IGNORE_FILE,)
        with open(own[0], "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    return (*DEFAULT, *lines, *more)


def counted(root: bytes, excluded: Iterable[Excluded]) -> list[Excluded]:
    """The same with their files and bytes. Of more than 200,000 files in all, the rest stays uncounted."""
    left = _MOST_COUNTED
    out = []
    for one in excluded:
        if one.files < 0 < left:
            files, size = _weight(join(root, one.path), left)
            left -= files
            out.append(replace(one, files=files, size=size))
        else:
            out.append(one)
    return out


def _weight(path: bytes, most: int) -> tuple[int, int]:
    files = size = 0
    waiting = [path]
    while waiting and files < most:
        at = waiting.pop()
        with suppress(OSError):
            found = os.lstat(at)
            if not stat.S_ISDIR(found.st_mode):
                files, size = files + 1, size + found.st_size
                continue
            with os.scandir(at) as names:
                for name in names:
                    if name.is_dir(follow_symlinks=False):
                        waiting.append(name.path)
                    else:
                        files, size = files + 1, size + name.stat(follow_symlinks=False).st_size
    return files, size
