"""Files of this host as mounts at the client show them, and as they are fetched: names in bytes, many at
once.

What cannot be had is answered with an errno, not raised: whoever asks tells it to the kernel. Nothing is held
open between calls.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..gather.attributes import Attributes, Version, is_same_content, is_same_file, of, pack, pack_one
from ..gather.config import MOUNT_NAME
from ..mounts.feed import Chunk, Landed, NotLanded, land
from .opening import named_path

if TYPE_CHECKING:
    from ..agent.context import HostContext  # not for the callers' end, a process that is started again

__all__ = ["MOST_READ", "PAGE", "LiveFiles"]

PAGE = 20_000
"""Entries of one answer, at most."""
MOST_READ = 4 * 1024 * 1024
_TIMEOUT_S = 8.0
_THREADS = 16
_MOUNTS_S = 1.0
_TICK_NS = 20_000_000

T = TypeVar("T")


class LiveFiles(Actor):
    """A path is a root (absolute, or relative to the workspace) and what is below it."""

    def __init__(self, context: HostContext, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._context = context
        self._timeout_s = timeout_s
        # As in `Files`: a thread that hangs holds its place here and no other one.
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._own_mounts = _OwnMounts()

    @endpoint
    async def ping(self) -> None:
        """Says that this host is there."""

    @endpoint
    async def attributes(self, root: str, below: bytes) -> Chunk | int:
        """Of a file, links not followed; of the root itself they are."""

        def look(path: bytes) -> Chunk:
            return Chunk(pack_one(_attributes(path, follow=not below)))

        return await self._in_thread(root, below, look)

    @endpoint
    async def entries(self, root: str, below: bytes, after: bytes = b"", most: int = PAGE) -> Chunk | int:
        """A page of a directory: the entries whose names come after one, in their order."""

        def look(path: bytes) -> Chunk:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._own_mounts.refuse(os.fstat(fd))
                names = (name for entry in os.listdir(fd) if (name := os.fsencode(entry)) > after)
                wanted = heapq.nsmallest(most + 1, names)
                more = len(wanted) > most
                found = [(name, one) for name in wanted[:most] if (one := _entry(fd, name)) is not None]
            finally:
                os.close(fd)
            return Chunk(pack(found, more))

        return await self._in_thread(root, below, look)

    @endpoint
    async def open(self, root: str, below: bytes, whole: int) -> tuple[Chunk, Chunk | None] | int:
        """Attributes of a regular file that can be read, and all its bytes where they are few."""

        return await self._in_thread(root, below, lambda path: self._open(path, whole))

    @endpoint
    async def open_several(
        self, root: str, below: list[bytes], whole: int
    ) -> list[tuple[Chunk, Chunk | None] | int] | int:
        """`open` of each."""

        def one(path: bytes) -> tuple[Chunk, Chunk | None] | int:
            try:
                return self._open(path, whole)
            except OSError as error:
                return error.errno or errno.EIO

        def look(path: bytes) -> list[tuple[Chunk, Chunk | None] | int]:
            return [one(os.path.join(path, name)) for name in below]

        return await self._in_thread(root, b"", look)

    @endpoint
    async def read(self, root: str, below: bytes, version: Version, offset: int, length: int) -> Chunk | int:
        """A range, shorter at the end of the file; ESTALE where another file has the name by now."""

        def look(path: bytes) -> Chunk:
            return Chunk(self._read(path, version, offset, length))

        return await self._in_thread(root, below, look)

    @endpoint
    async def read_to(
        self,
        root: str,
        below: bytes,
        version: Version,
        offset: int,
        length: int,
        landing: bytes,
    ) -> tuple[Landed | NotLanded, int] | int:
        """A range into an RDMABuffer of the caller's, which comes pickled, and its length.

        Raises:
            Conflict: buffer_dropped, the caller does not want it any more.
        """

        def look(path: bytes) -> bytes:
            return self._read(path, version, offset, length)

        data = await self._in_thread(root, below, look)
        if isinstance(data, int):
            return data
        if not data:
            return NotLanded("", Chunk(b"")), 0
        return await land(data, landing), len(data)

    @endpoint
    async def whole(self, below: list[bytes]) -> list[tuple[Chunk, Chunk, bytes] | int] | int:
        """Small files by absolute paths: attributes, bytes and their SHA-256, all of one version."""

        def one(path: bytes) -> tuple[Chunk, Chunk, bytes] | int:
            try:
                with self._opened(path) as (fd, _):
                    status = _settled(fd)
                    data = _read_fully(fd, 0, min(status.st_size, MOST_READ))
                    _require(fd, of(status).version)
            except OSError as error:
                return error.errno or errno.EIO
            return Chunk(pack_one(of(status))), Chunk(data), sha256(data).digest()

        return await self._in_thread("/", b"", lambda _: [one(path) for path in below])

    @endpoint
    async def version(self, path: bytes) -> Chunk | int:
        """Attributes of a regular file, links followed; a later write changes them for certain."""

        def look(path: bytes) -> Chunk:
            with self._opened(path) as (fd, _):
                return Chunk(pack_one(of(_settled(fd))))

        return await self._in_thread("/", path, look)

    @endpoint
    async def extents(
        self, path: bytes, version: Version, offset: int, most: int
    ) -> list[tuple[int, int]] | int:
        """Ranges of a file from an offset on that are no holes, so many at most."""

        def look(path: bytes) -> list[tuple[int, int]]:
            with self._opened(path) as (fd, _):
                _require(fd, version)
                return list(islice(_data(fd, offset, version[1]), most))

        return await self._in_thread("/", path, look)

    @endpoint
    async def digest(self, path: bytes, version: Version, offset: int, length: int) -> bytes | int:
        """SHA-256 of a range."""

        def look(path: bytes) -> bytes:
            found = sha256()
            with self._opened(path) as (fd, _):
                for at in range(offset, offset + length, MOST_READ):
                    found.update(_read_fully(fd, at, min(MOST_READ, offset + length - at)))
                _require(fd, version)
            return found.digest()

        return await self._in_thread("/", path, look)

    @endpoint
    async def part(
        self, path: bytes, version: Version, offset: int, length: int, landing: bytes | None
    ) -> tuple[Chunk | Landed | NotLanded, int, bytes] | int:
        """A range of a file that had this version before and after it was read: the bytes, into an RDMABuffer
        of the caller's where one comes pickled, how many they are, and their SHA-256. ESTALE: it has changed.

        Raises:
            Conflict: buffer_dropped, the caller does not want it any more.
        """

        def look(path: bytes) -> tuple[bytes, bytes]:
            with self._opened(path) as (fd, _):
                data = _read_fully(fd, offset, min(length, MOST_READ))
                _require(fd, version)
            return data, sha256(data).digest()

        found = await self._in_thread("/", path, look)
        if isinstance(found, int):
            return found
        data, digest = found
        if landing is None or not data:
            return Chunk(data), len(data), digest
        return await land(data, landing), len(data), digest

    def _open(self, path: bytes, whole: int) -> tuple[Chunk, Chunk | None]:
        with self._opened(path) as (fd, status):
            # What has no size may have bytes: the kernel's files tell none.
            data = os.pread(fd, whole + 1, 0) if status.st_size <= whole else b""
            chunk = None if status.st_size > whole or len(data) > whole else Chunk(data)
            return Chunk(pack_one(of(status))), chunk

    def _read(self, path: bytes, version: Version, offset: int, length: int) -> bytes:
        with self._opened(path) as (fd, status):
            if not is_same_file(of(status).version, version):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return os.pread(fd, min(length, MOST_READ), offset)

    @contextmanager
    def _opened(self, path: bytes) -> Iterator[tuple[int, os.stat_result]]:
        """A regular file; it never waits for a writer of a FIFO.

        Raises:
            OSError: ENXIO, it is something else.
        """
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
            self._own_mounts.refuse(status)
            yield fd, status
        finally:
            os.close(fd)

    async def _in_thread(self, root: str, below: bytes, look: Callable[[bytes], T]) -> T | int:
        resolved = self._context.resolve(root)

        def work() -> T | int:
            path = os.fsencode(named_path(resolved))
            try:
                return look(os.path.join(path, below) if below else path)
            except OSError as error:
                return error.errno or errno.EIO
            except ValueError:  # a NUL in it
                return errno.EINVAL

        try:
            with anyio.fail_after(self._timeout_s):
                return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        except TimeoutError:  # the file system hangs
            return errno.EIO


def _read_fully(fd: int, offset: int, length: int) -> bytes:
    """A range, shorter at the end alone."""
    data = os.pread(fd, length, offset)
    while 0 < len(data) < length and (more := os.pread(fd, length - len(data), offset + len(data))):
        data += more
    return data


def _settled(fd: int) -> os.stat_result:
    """The status of a file, when any later write makes it another one: clocks of file systems have ticks."""
    status = os.fstat(fd)
    if time.time_ns() - max(status.st_ctime_ns, status.st_mtime_ns) < _TICK_NS:
        time.sleep(_TICK_NS / 1e9)
        status = os.fstat(fd)
    return status


def _require(fd: int, version: Version) -> None:
    """
    Raises:
        OSError: ESTALE, it has another one.
    """
    if not is_same_content(of(os.fstat(fd)).version, version):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def _data(fd: int, offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges that are no holes; where the file system cannot tell, all of it is one."""
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
            end = min(size, os.lseek(fd, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            start, end = offset, size
        if start < end:
            yield start, end
        offset = end


def _attributes(path: bytes, *, follow: bool) -> Attributes:
    status = os.stat(path) if follow else os.lstat(path)
    return of(status, os.readlink(path) if stat.S_ISLNK(status.st_mode) else b"")


def _entry(directory: int, name: bytes) -> Attributes | None:
    """None where it has gone since."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        target = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else b""
    except OSError:
        return None
    return of(status, target)


class _OwnMounts:
    """Gather mounts that this host sees, since it shares a file system with the client: what leads into one
    would lead back here, round and round.
    """

    def __init__(self) -> None:
        self._devices: frozenset[int] = frozenset()
        self._looked_at = -_MOUNTS_S

    def refuse(self, status: os.stat_result) -> None:
        """
        Raises:
            OSError: ELOOP, the file is in one.
        """
        now = time.monotonic()
        if now - self._looked_at > _MOUNTS_S:
            self._devices, self._looked_at = _devices(), now
        if status.st_dev in self._devices:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _devices() -> frozenset[int]:
    found = set()
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            before, _, after = line.partition(b" - ")
            if MOUNT_NAME.encode() in after:
                major, minor = before.split()[2].split(b":")
                found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)
