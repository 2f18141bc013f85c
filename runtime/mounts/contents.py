"""Bytes of a tree's files: of the version that was asked for, or none. Blocks: call it in a thread."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from hashlib import blake2b

from .manifest import FileRef
from .scanning import Place
from .source import Bytes, Gone, Unreadable
from .versions import version_of

__all__ = ["digest_of", "read_all", "read_version", "tick_s"]

_FINE_TIMES = frozenset({"ext4", "xfs", "btrfs", "tmpfs"})
_FINE_SINCE = (6, 13)
_COARSE_S = 0.012  # more than a tick of any kernel: 10 ms where it has 100 a second
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def tick_s(file_system: str, release: str) -> float:
    """For how long two changes of a file may leave the same ctime there, in seconds.

    From Linux 6.13 on some file systems give a ctime of its own to each change after one that was looked at.
    """
    found = re.match(r"(\d+)\.(\d+)", release)
    fine = found is not None and (int(found[1]), int(found[2])) >= _FINE_SINCE
    return 0.0 if fine and file_system in _FINE_TIMES else _COARSE_S


def read_version(
    place: Place, file: FileRef, offset: int, length: int, tick: float, into: memoryview | None = None
) -> Bytes:
    """Bytes of a version, in memory of its own or in that which is given.

    Raises:
        Gone: the file has another version, or went.
        Unreadable: it cannot be opened or read.
    """
    try:
        fd = os.open(place.absolute(file.path), _OPEN)
    except FileNotFoundError:
        raise Gone from None
    except OSError as error:
        raise Unreadable(error.errno or 0) from None
    try:
        before = os.fstat(fd)
        _check(place, before, file)
        if tick and abs(time.time_ns() - before.st_ctime_ns) < 2 * tick * 1e9:
            time.sleep(tick)  # what may yet be written under the same ctime is written when we read
        data = _read(fd, offset, length, into)
        _check(place, os.fstat(fd), file)
    except OSError as error:
        raise Unreadable(error.errno or 0) from None
    finally:
        os.close(fd)
    if len(data) != length:
        raise Gone
    return data


def read_all(place: Place, files: Sequence[FileRef], tick: float) -> list[Bytes | None]:
    """Small files, None for each that has another version or cannot be read."""
    found: list[Bytes | None] = []
    for file in files:
        try:
            found.append(read_version(place, file, 0, file.size, tick))
        except (Gone, Unreadable):
            found.append(None)
    return found


def digest_of(data: Bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _check(place: Place, found: os.stat_result, file: FileRef) -> None:
    salt = place.salts.get((found.st_dev, found.st_ino), 0)
    if not stat.S_ISREG(found.st_mode) or version_of(found, salt) != file.version:
        raise Gone


def _read(fd: int, offset: int, length: int, into: memoryview | None) -> Bytes:
    """Fewer, where the file ends before."""
    if into is None:
        data = os.pread(fd, length, offset)
        if len(data) == length:
            return data
        into = memoryview(bytearray(length))
    done = 0
    while done < length and (more := os.preadv(fd, [into[done:length]], offset + done)):
        done += more
    return into[:done]
