"""What a host wrote into a copy: seen by comparing the directory with what was copied there. Blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

from .manifest import DIRECTORY, LINK, Entry, Manifest, join, split
from .overlay import aside_names
from .upper import Usage

__all__ = ["TEMPORARY", "ReplacedBy", "changed", "is_as_copied", "is_same_content", "move_aside", "sizes"]

TEMPORARY = b".milkweed-new-"
"""How names begin of what is not whole yet."""
ReplacedBy = tuple[bytes, Entry | None]
"""A path where something else is than was copied there; what was, None for nothing."""
_SMALL = 1024 * 1024


def is_as_copied(absolute: bytes, entry: Entry | None) -> bool:
    """Whether what is there is what was copied there; nothing at all counts as that."""
    try:
        found = os.lstat(absolute)
    except OSError:
        return True
    if entry is None:
        return False
    if entry.kind == DIRECTORY:
        return stat.S_ISDIR(found.st_mode)
    if entry.kind == LINK:
        return stat.S_ISLNK(found.st_mode) and os.readlink(absolute) == entry.target
    is_file = stat.S_ISREG(found.st_mode)
    return is_file and (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns)


def is_same_content(one: bytes, other: bytes) -> bool:
    """Of two small files."""
    with suppress(OSError):
        found = [os.lstat(path) for path in (one, other)]
        if found[0].st_size != found[1].st_size or found[0].st_size > _SMALL:
            return False
        if all(stat.S_ISREG(each.st_mode) for each in found):
            with open(one, "rb") as first, open(other, "rb") as second:
                return first.read() == second.read()
    return False


def move_aside(root: bytes, path: bytes) -> bytes:
    """To the best name that is free: that.

    Raises:
        OSError: it cannot be moved.
    """
    directory, name = split(path)
    for fresh in aside_names(name):
        if not os.path.lexists(join(root, join(directory, fresh))):
            os.rename(join(root, path), join(root, join(directory, fresh)))
            return join(directory, fresh)
    raise AssertionError("names do not end")


def changed(root: bytes, manifest: Manifest) -> Iterator[ReplacedBy]:
    """All that the host made, changed or removed; of a directory that it made, what is in it after it."""
    waiting = [b""]
    while waiting:
        directory = waiting.pop()
        content = manifest.directories.get(directory, {})
        names = set()
        for found in os.scandir(join(root, directory) if directory else root):
            if found.name.startswith(TEMPORARY):
                continue
            names.add(found.name)
            path, entry = join(directory, found.name), content.get(found.name)
            if found.is_dir(follow_symlinks=False):
                waiting.append(path)
            if not is_as_copied(found.path, entry):
                yield path, entry
        for name, entry in content.items():
            if name not in names:
                yield join(directory, name), entry


def sizes(root: bytes, paths: Iterable[ReplacedBy]) -> Usage:
    """Of what is there that is no directory."""
    files = size = 0
    for path, _ in paths:
        with suppress(OSError):
            found = os.lstat(join(root, path))
            if not stat.S_ISDIR(found.st_mode):
                files, size = files + 1, size + found.st_size
    return Usage(files, size)
