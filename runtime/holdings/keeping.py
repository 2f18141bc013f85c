"""Files of hosts put where they outlive the mesh: linked where that can be, else copied. Blocking."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .records import HeldFile

__all__ = ["Kept", "keep", "make_private", "open_up"]

_ROOM_LEFT = 1 << 30
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)
_PIECE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kept:
    """`failed` says of which files not, and why."""

    files: int = 0
    bytes: int = 0
    failed: tuple[str, ...] = ()


def keep(files: Iterable[HeldFile], below: Path, instead: Path | None = None) -> Kept:
    """Puts each at `below` with its whole path, only for this user; what is there already, of an earlier try,
    is replaced. What cannot be there is linked below `instead`, of the same disk as the files.

    Nothing writes to them any more: a link shares the bytes. A copy leaves 1 GiB of the disk to others.
    """
    count = size = 0
    failed = []
    taken: set[Path] = set()
    for file in files:
        target = _free(below / file.path.lstrip("/"), taken)
        taken.add(target)
        try:
            _put(Path(file.real), target, below.with_name(f".{below.name}.part"), _link_or_copy)
        except OSError as error:
            failed.append(f"{file.path}: {error.strerror or error}{_put_instead(file, instead)}")
        else:
            count, size = count + 1, size + file.size
    return Kept(count, size, tuple(failed))


def open_up(directory: Path) -> None:
    """Has its user look into, and remove, all that is below: some programs close what they make."""
    if os.geteuid() == 0:
        return
    for folder, below, _ in os.walk(directory):
        for name in below:
            path = os.path.join(folder, name)
            with suppress(OSError):
                mode = os.lstat(path).st_mode
                if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                    os.chmod(path, stat.S_IMODE(mode) | stat.S_IRWXU)


def _free(target: Path, taken: set[Path]) -> Path:
    """Of two paths of a host one may be in the workspace and one not: `var/tmp/a` and `/var/tmp/a`."""
    number, name = 2, target.name
    while target in taken:
        target, number = target.with_name(f"{name}.{number}"), number + 1
    return target


def _put_instead(file: HeldFile, below: Path | None) -> str:
    """In words, where that could be."""
    if below is None:
        return ""
    target = below / file.path.lstrip("/")
    try:
        _put(Path(file.real), target, below.with_name(f".{below.name}.part"), _link)
    except OSError:
        return ""
    return f"; it is in {target}"


def _put(source: Path, target: Path, part: Path, get: Callable[[Path, Path], None]) -> None:
    """`part` is no name that a kept file has, and of the target's disk."""
    make_private(part.parent)
    make_private(target.parent)
    with suppress(FileNotFoundError):
        part.unlink()
    get(source, part)
    try:
        os.replace(part, target)
    except OSError:
        part.unlink()
        raise


def make_private(directory: Path) -> None:
    """With its parents, all of them for this user alone."""
    if directory.is_dir():
        return
    if directory.exists():
        raise NotADirectoryError(errno.ENOTDIR, f"{directory} is not a directory")
    make_private(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)


def _link(source: Path, target: Path) -> None:
    os.link(source, target, follow_symlinks=False)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        _link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(source, target)


def _copy(source: Path, part: Path) -> None:
    """With its holes, its mode and its times."""
    if os.geteuid():
        os.chmod(source, os.stat(source).st_mode | stat.S_IRUSR)
    try:
        with source.open("rb") as read, part.open("xb") as write:
            size = os.fstat(read.fileno()).st_size
            os.ftruncate(write.fileno(), size)
            for start, end in _data(read.fileno(), size):
                if shutil.disk_usage(part.parent).free < _ROOM_LEFT + end - start:
                    raise OSError(errno.ENOSPC, "its disk is nearly full")
                _copy_range(read.fileno(), write.fileno(), start, end)
        shutil.copystat(source, part)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _data(descriptor: int, size: int) -> Iterable[tuple[int, int]]:
    """What of a file is no hole, in pieces."""
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        hole = os.lseek(descriptor, start, os.SEEK_HOLE)
        at = min(hole, start + _PIECE)
        yield start, at


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        done = os.sendfile(target, source, start, end - start) if _seek(target, start) else 0
        if not done:
            raise OSError(errno.EIO, "it became shorter")
        start += done


def _seek(descriptor: int, offset: int) -> bool:
    return os.lseek(descriptor, offset, os.SEEK_SET) == offset
