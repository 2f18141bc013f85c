"""A mount that is written to and a plain directory, which are to be the same whatever is done to both.

The client's edits are made in the source alone; what they are to do to the plain directory is `_Rule`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Kept", "Twins", "tree_of"]

Kept = list[tuple[str, str]]
Tree = dict[str, tuple[Any, ...]]


def tree_of(root: Path) -> Tree:
    """Everything there: kinds, modes, contents."""
    found: Tree = {}
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = _look(path)
    return found


def _stamp(place: Path) -> tuple[int, ...] | None:
    """None for a folder, and for nothing."""
    try:
        found = os.lstat(place)
    except OSError:
        return None
    return None if stat.S_ISDIR(found.st_mode) else (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def _look(path: str) -> tuple[Any, ...]:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return ("link", os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return ("folder", stat.S_IMODE(status.st_mode))
    with open(path, "rb") as file:
        return ("file", stat.S_IMODE(status.st_mode), status.st_size, file.read())


class Twins:
    """`barrier` returns when the client's edits are seen in the mount: what the client was told of conflicts.

    Each operation is done to both, and must end in the same way: the same result, or the same errno.
    """

    def __init__(self, mount: Path, plain: Path, source: Path, barrier: Callable[[], Kept]) -> None:
        self.mount = mount
        self.plain = plain
        self.source = source
        self._barrier = barrier
        self._rule = _Rule(plain, source)
        self._open: list[tuple[int, int]] = []
        shutil.copytree(source, plain, symlinks=True)

    def close(self) -> None:
        while self._open:
            self.shut(0)

    def compare(self) -> None:
        there, here = tree_of(self.mount), tree_of(self.plain)
        assert there == here, _difference(there, here)

    def killed(self, kill: Callable[[], None]) -> None:
        """The process of the mount dies by `kill`, which returns when another has taken its place."""
        self.close()
        kill()
        self.compare()
        for path in sorted(self._rule.own):
            # Whether it was changed at all is not to be seen of these any more.
            mine, theirs = self.plain / path, self.source / path
            if mine.is_file() and theirs.is_file() and mine.read_bytes() == theirs.read_bytes():
                self.unlink(path)

    def forget(self, path: str) -> None:
        """Both were relieved of it, whatever was in it."""
        self._rule.own = {one for one in self._rule.own if not _is_in(one, path)}
        self._rule.own_folders = {one for one in self._rule.own_folders if not _is_in(one, path)}

    # What a program does.

    def write(self, path: str, data: bytes) -> None:
        def do(root: Path) -> None:
            with open(root / path, "wb", buffering=0) as file:
                file.write(data)

        self._both(do, path)

    def append(self, path: str, data: bytes) -> None:
        def do(root: Path) -> int:
            with open(root / path, "ab", buffering=0) as file:
                file.write(data)
                return file.tell()

        self._both(do, path)

    def patch(self, path: str, at: int, data: bytes) -> None:
        def do(root: Path) -> None:
            fd = os.open(root / path, os.O_WRONLY)
            try:
                os.pwrite(fd, data, at)
                os.fsync(fd)
            finally:
                os.close(fd)

        self._both(do, path)

    def make(self, path: str) -> None:
        def do(root: Path) -> None:
            os.close(os.open(root / path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))

        self._both(do, path)

    def truncate(self, path: str, size: int) -> None:
        self._both(lambda root: os.truncate(root / path, size), path)

    def chmod(self, path: str, mode: int) -> None:
        self._both(lambda root: os.chmod(root / path, mode), path)

    def date(self, path: str, mtime_ns: int) -> None:
        def do(root: Path) -> int:
            if os.path.isdir(root / path):
                return 0
            os.utime(root / path, ns=(mtime_ns, mtime_ns))
            return os.stat(root / path).st_mtime_ns

        self._both(do, path)

    def store(self, path: str, at: int, data: bytes) -> None:
        """Through a mapping."""

        def do(root: Path) -> bytes:
            with open(root / path, "r+b") as file:
                if not data or os.fstat(file.fileno()).st_size < at + len(data):
                    return b""
                with mmap.mmap(file.fileno(), 0) as mapped:
                    mapped[at : at + len(data)] = data
                    return bytes(mapped)

        self._both(do, path)

    def read(self, path: str) -> None:
        def do(root: Path) -> bytes:
            with open(root / path, "rb") as file:
                return file.read()

        self._both(do)

    def look(self, path: str) -> None:
        def do(root: Path) -> tuple[int, int, list[str]]:
            found = os.lstat(root / path)
            if stat.S_ISDIR(found.st_mode):
                return found.st_mode, 0, sorted(os.listdir(root / path))
            return found.st_mode if stat.S_ISREG(found.st_mode) else 0, found.st_size, []

        self._both(do)

    def link(self, path: str, target: str) -> None:
        self._both(lambda root: os.symlink(target, root / path), path, is_followed=False)

    def link_hard(self, path: str, other: str) -> None:
        """Is refused, whatever else is wrong."""
        for place in (self.mount / other, self.mount / "nowhere"):
            with pytest.raises(OSError, match=r"not permitted|No such|exists|Not a dir|Too many"):
                os.link(self.mount / path, place, follow_symlinks=False)

    def mkdir(self, path: str) -> None:
        name = self._rule.real(path, is_followed=False)
        if self._both(lambda root: os.mkdir(root / path)):
            self._rule.made(name)

    def rmdir(self, path: str) -> None:
        name = self._rule.real(path, is_followed=False)
        if self._both(lambda root: os.rmdir(root / path)):
            self._rule.own_folders.discard(name)

    def unlink(self, path: str) -> None:
        name = self._rule.real(path, is_followed=False)
        if self._both(lambda root: os.unlink(root / path)):
            self._rule.own.discard(name)

    def rename(self, old: str, new: str) -> None:
        names = [self._rule.real(path, is_followed=False) for path in (old, new)]
        if self._both(lambda root: os.rename(root / old, root / new)):
            self._rule.renamed(*names)

    def open(self, path: str, flags: int) -> None:
        """A handle that stays."""
        fds: list[int] = []

        def do(root: Path) -> None:
            fds.append(os.open(root / path, flags, 0o644))

        if self._both(do, path):
            self._open.append((fds[0], fds[1]))
            if len(self._open) > 8:
                self.shut(0)

    def shut(self, which: int) -> None:
        if self._open:
            for fd in self._open.pop(which % len(self._open)):
                os.close(fd)

    def through(self, which: int, what: str, at: int, data: bytes) -> None:
        """Something with a handle."""
        if not self._open:
            return
        pair = self._open[which % len(self._open)]
        fds = {self.mount: pair[0], self.plain: pair[1]}

        def do(root: Path) -> Any:
            fd = fds[root]
            match what:
                case "read":
                    return os.pread(fd, 100, at)
                case "write":
                    return os.pwrite(fd, data, at)
                case "truncate":
                    return os.ftruncate(fd, at)
                case "stat":
                    found = os.fstat(fd)
                    return (found.st_size, found.st_nlink) if stat.S_ISREG(found.st_mode) else ()
                case "sync":
                    return os.fsync(fd)
                case _:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return fcntl.flock(fd, fcntl.LOCK_UN)

        name = os.readlink(f"/proc/self/fd/{pair[1]}")
        is_named = not name.endswith(" (deleted)") and name != str(self.plain)
        self._both(do, os.path.relpath(name, os.path.realpath(self.plain)) if is_named else "")

    # What the client does.

    def edit(self, path: str, data: bytes) -> None:
        """To something else than it was: what was touched counts as changed."""

        def do(place: Path) -> None:
            is_same = place.is_file() and not place.is_symlink() and place.read_bytes() == data
            _replace(place, data + b"!" if is_same else data)

        self._edit(path, do)

    def edit_link(self, path: str, target: str) -> None:
        def do(place: Path) -> None:
            if not os.path.lexists(place):
                os.symlink(target, place)

        self._edit(path, do)

    def edit_folder(self, path: str) -> None:
        self._edit(path, lambda place: place.mkdir())

    def edit_removal(self, path: str) -> None:
        self._edit(path, _remove)

    def _edit(self, path: str, do: Callable[[Path], None]) -> None:
        before = tree_of(self.source)
        place = self.source / path
        if os.path.realpath(place.parent) == os.path.join(
            os.path.realpath(self.source), *Path(path).parts[:-1]
        ):
            with suppress(OSError):
                do(place)
        told = self._barrier()
        ruled = self._rule.edited(before, tree_of(self.source))
        assert told == ruled, f"{path}: told {told}, ruled {ruled}"

    def _both(self, do: Callable[[Path], Any], path: str = "", is_followed: bool = True) -> bool:
        """Whether it was done; a file that it has changed is the host's own."""
        name = self._rule.real(path, is_followed) if path else ""
        before = _stamp(self.plain / name)
        ends = []
        for root in (self.mount, self.plain):
            try:
                ends.append((0, do(root)))
            except OSError as error:
                ends.append((error.errno or -1, None))
        assert ends[0] == ends[1], f"{path}: {ends}"
        if name and _stamp(self.plain / name) not in (None, before):
            self._rule.own.add(name)
        return not ends[0][0]


class _Rule:
    """What the client's edits do to what a host has: `own` is what it wrote, `own_folders` what it made."""

    def __init__(self, root: Path, source: Path) -> None:
        self.root = root
        self.source = source
        self.own: set[str] = set()
        self.own_folders: set[str] = set()
        self._kept: Kept = []

    def real(self, path: str, is_followed: bool = True) -> str:
        place = self.root / path
        found = os.path.realpath(place) if is_followed else f"{os.path.realpath(place.parent)}/{place.name}"
        return os.path.relpath(found, os.path.realpath(self.root))

    def renamed(self, old: str, new: str) -> None:
        if old == new:
            return
        self.own = {one for one in self.own if not _is_in(one, new) and not _is_in(one, old)}
        self.own_folders = {one for one in self.own_folders if not _is_in(one, new) and not _is_in(one, old)}
        self._is_own(new)

    def made(self, folder: str) -> None:
        """It is the host's own, where it is not the client's too."""
        place = os.path.join(os.path.realpath(self.source), folder)
        if os.path.realpath(place) != place or not os.path.isdir(place):  # no link leads there
            self.own_folders.add(folder)

    def edited(self, before: Tree, after: Tree) -> Kept:
        self._kept = []
        changed = [path for path in sorted({*before, *after}, key=_order) if _differ(before, after, path)]
        for path in changed:
            self._one(path, before.get(path), after.get(path))
        for path in reversed(changed):
            place = self.root / path
            if path not in after and place.is_dir() and not place.is_symlink():
                if path in self.own_folders or os.listdir(place):
                    self.own_folders.add(path)
                else:
                    place.rmdir()
        return sorted(self._kept)

    def _one(self, path: str, before: tuple[Any, ...] | None, after: tuple[Any, ...] | None) -> None:
        place = self.root / path
        is_there, is_folder = os.path.lexists(place), place.is_dir() and not place.is_symlink()
        if after is None:
            if is_there and not is_folder:
                self._aside(path) if path in self.own else place.unlink()
            return
        for above in reversed(Path(path).parents[:-1]):
            if not (self.root / above).is_dir() or (self.root / above).is_symlink():
                if os.path.lexists(self.root / above):
                    self._aside(str(above))
                (self.root / above).mkdir()
        is_there, is_folder = os.path.lexists(place), place.is_dir() and not place.is_symlink()
        if after[0] == "folder" and is_folder:
            self.own_folders.discard(path)
            place.chmod(after[1])
            return
        if is_folder:
            self._aside_whole(path)
        elif path in self.own:
            mine = _look(str(place))
            if mine[0] == after[0] and mine[-1] == after[-1]:
                self.own.discard(path)
                place.unlink()
            else:
                self._aside(path)
        elif is_there:
            place.unlink()
        elif before is not None:
            self._kept.append((path, ""))
        self._put(place, after)

    def _put(self, place: Path, entry: tuple[Any, ...]) -> None:
        if entry[0] == "folder":
            place.mkdir()
        elif entry[0] == "link":
            place.symlink_to(entry[1])
        else:
            _replace(place, entry[3])
            place.chmod(entry[1])

    def _aside_whole(self, path: str) -> None:
        """What the client has in there goes with its folder."""
        for folder, folders, names in os.walk(self.root / path, topdown=False):
            inside = os.path.relpath(folder, self.root)
            for name in [*names, *(one for one in folders if os.path.islink(f"{folder}/{one}"))]:
                if f"{inside}/{name}" not in self.own:
                    os.unlink(f"{folder}/{name}")
            if inside not in self.own_folders and not os.listdir(folder):
                os.rmdir(folder)
        if os.path.lexists(self.root / path):
            self._aside(path)

    def _aside(self, path: str) -> None:
        fresh, number = f"{path}.host-copy", 1
        while os.path.lexists(self.root / fresh):
            number += 1
            fresh = f"{path}.host-copy-{number}"
        os.rename(self.root / path, self.root / fresh)
        self.renamed(path, fresh)
        self._kept.append((path, fresh))

    def _is_own(self, path: str) -> None:
        place = self.root / path
        if not place.is_dir() or place.is_symlink():
            self.own.add(path)
            return
        self.made(path)
        for name in os.listdir(place):
            self._is_own(f"{path}/{name}")


def _differ(before: Tree, after: Tree, path: str) -> bool:
    one, other = before.get(path), after.get(path)
    return one != other


def _order(path: str) -> list[str]:
    return path.split("/")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _replace(place: Path, data: bytes) -> None:
    """Nobody who has it open is to see that; where it cannot be, nothing is made, not even for a moment."""
    if place.is_dir() and not place.is_symlink():
        raise IsADirectoryError(place)
    fresh = place.with_name(".fresh")
    fresh.write_bytes(data)
    try:
        os.rename(fresh, place)
    except OSError:
        fresh.unlink()
        raise


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()


def _difference(there: Tree, here: Tree) -> str:
    return "; ".join(
        f"{path}: mounted {there.get(path)!r:.80}, plain {here.get(path)!r:.80}"
        for path in sorted({*there, *here})
        if there.get(path) != here.get(path)
    )
