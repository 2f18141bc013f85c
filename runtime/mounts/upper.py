"""Where a host's own files lie: a plain tree of the very names, which anybody may read. Blocks, briefly."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ..removing import remove_tree
from .manifest import DIRECTORY, FILE, LINK, Entry, join
from .overlay import OTHER
from .source import Bytes

__all__ = ["TREE", "Stamp", "Upper", "Usage", "kind_of", "usage"]

TREE = "tree"
"""In the directory of an overlay: the files. Beside it lie its log and what is not whole yet."""
_NEW = "new"
_TRASH = "trash"
_LARGE = 64 * 1024 * 1024


class Usage(NamedTuple):
    """What is not a directory, and how many bytes that is."""

    files: int
    size: int


class Stamp(NamedTuple):
    """What tells whether a file was changed."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Upper:
    """Paths are relative to the tree, in bytes."""

    def __init__(self, directory: Path) -> None:
        """
        Raises:
            OSError: it cannot be made.
        """
        self.directory = directory
        self.root = os.fsencode(directory / TREE)
        self._new = os.fsencode(directory / _NEW)
        self._trash = os.fsencode(directory / _TRASH)
        self._made = 0
        self._masked = _umask()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.is_fresh = not os.path.isdir(self.root)
        for place in (self._new, self._trash):
            remove_tree(place)
            os.makedirs(place, mode=0o700, exist_ok=True)
        if self.is_fresh:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            os.utime(self.root, (0, 0))

    def path(self, path: bytes) -> bytes:
        return join(self.root, path) if path else self.root

    def stamp(self, path: bytes) -> Stamp:
        """
        Raises:
            OSError: it is not there.
        """
        found = os.lstat(self.path(path))
        return Stamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def scan(self, path: bytes = b"") -> Iterator[tuple[bytes, int]]:
        """All that is there with its kind, each directory before what is in it; those that a program has
        forbidden to look into too.
        """
        waiting = [path]
        with ExitStack() as entered:
            while waiting:
                directory = waiting.pop()
                try:
                    names = _names_and_modes(self.path(directory))
                except PermissionError:
                    entered.enter_context(_entered(self.path(directory)))
                    names = _names_and_modes(self.path(directory))
                for name, mode in names:
                    inside, kind = join(directory, name), kind_of(mode)
                    if kind == DIRECTORY:
                        waiting.append(inside)
                    yield inside, kind

    def create(self, path: bytes, mode: int) -> int:
        """A new file, open.

        Raises:
            OSError: it is there, or there is no room.
        """
        fd = os.open(self.path(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        if mode & self._masked:
            os.fchmod(fd, mode)
        return fd

    def make_directory(self, path: bytes, mode: int) -> None:
        absolute = self.path(path)
        os.mkdir(absolute, mode)
        if mode & (self._masked | 0o7000):
            os.chmod(absolute, mode)

    def make_node(self, path: bytes, mode: int) -> None:
        absolute = self.path(path)
        os.mknod(absolute, mode)
        if mode & self._masked:
            os.chmod(absolute, stat.S_IMODE(mode))

    def remove(self, path: bytes) -> None:
        """Of a large file the bytes go in a thread."""
        absolute = self.path(path)
        with _freed_later(absolute):
            os.unlink(absolute)

    def rename(self, old: bytes, new: bytes) -> None:
        absolute = self.path(new)
        with _freed_later(absolute):
            os.rename(self.path(old), absolute)

    def begin(self) -> tuple[int, bytes]:
        """A file that is nowhere yet, open, and its own path."""
        self._made += 1
        path = b"%s/%d" % (self._new, self._made)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path

    def begin_link(self, target: bytes) -> bytes:
        self._made += 1
        path = b"%s/%d" % (self._new, self._made)
        os.symlink(target, path)
        return path

    def land(self, fresh: bytes, path: bytes, entry: Entry) -> None:
        """Puts what `begin` gave under its name, as the client has it."""
        if entry.kind == FILE:
            os.chmod(fresh, entry.mode)
        os.utime(fresh, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
        os.rename(fresh, self.path(path))

    def drop(self, fresh: bytes) -> None:
        with suppress(OSError):
            os.unlink(fresh)

    def throw_away(self, path: bytes) -> bytes:
        """Takes something out of the tree, whatever is in it; `empty_trash` then frees its bytes."""
        self._made += 1
        thrown = b"%s/%d" % (self._trash, self._made)
        os.rename(self.path(path), thrown)
        return thrown

    def empty_trash(self) -> Usage:
        """How much that was."""
        counted = usage(self._trash)
        for found in os.scandir(self._trash):
            if found.is_dir(follow_symlinks=False):
                remove_tree(found.path)
            else:
                with suppress(OSError):
                    os.unlink(found.path)
        return counted


def kind_of(mode: int) -> int:
    if stat.S_ISREG(mode):
        return FILE
    if stat.S_ISDIR(mode):
        return DIRECTORY
    return LINK if stat.S_ISLNK(mode) else OTHER


def _names_and_modes(absolute: bytes) -> list[tuple[bytes, int]]:
    with os.scandir(absolute) as content:
        return [(found.name, found.stat(follow_symlinks=False).st_mode) for found in content]


@contextmanager
def _entered(absolute: bytes) -> Iterator[None]:
    """Whoever owns a directory may do all in it, whatever its mode says otherwise."""
    mode = stat.S_IMODE(os.lstat(absolute).st_mode)
    os.chmod(absolute, mode | stat.S_IRWXU)
    try:
        yield
    finally:
        os.chmod(absolute, mode)


def usage(directory: bytes | str) -> Usage:
    """Of all that is below a directory, which need not be there."""
    files = size = 0
    waiting = [os.fsencode(directory)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as content:
            for found in content:
                if found.is_dir(follow_symlinks=False):
                    waiting.append(found.path)
                    continue
                with suppress(OSError):
                    size += found.stat(follow_symlinks=False).st_size
                files += 1
    return Usage(files, size)


def write_all(fd: int, offset: int, data: Bytes) -> None:
    """
    Raises:
        OSError: there is no room.
    """
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], offset + done)


class _freed_later:  # noqa: N801 - used as a function
    """Holds a large file open while its name goes: to free its blocks takes long, and is done in a thread."""

    def __init__(self, absolute: bytes) -> None:
        self._absolute = absolute
        self._fd = -1

    def __enter__(self) -> None:
        with suppress(OSError):
            found = os.lstat(self._absolute)
            if stat.S_ISREG(found.st_mode) and found.st_blocks * 512 > _LARGE:
                self._fd = os.open(self._absolute, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            threading.Thread(target=os.close, args=(self._fd,), daemon=True).start()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
