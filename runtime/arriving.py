"""One fetched file as it arrives: beside its place until it is whole, in order, with its holes.

What there is so far lies under a name with the file's size and time, so that it is never mixed with the bytes
of another version; its length is how far it came.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

import anyio
from anyio import to_thread

from .errors import Unavailable
from .names import quoted
from .origins import Bytes, Changed, Content, Origin

__all__ = ["Arriving", "put_whole", "unwritable"]

_AT_ONCE = 4
_TRIED_S = 0.05
_COMPARED = 4 * 1024 * 1024


class _Range(NamedTuple):
    """`task` reads it; None for a hole."""

    start: int
    end: int
    task: asyncio.Task[Bytes] | None


class Arriving:
    """`copy` gets on with it, from where it was left."""

    def __init__(self, origin: Origin, path: str, destination: Path, content: Content) -> None:
        self._origin = origin
        self._path = path
        self._destination = destination
        self._content = content
        self._partial = partial_of(destination, content)

    async def copy(self, goes_on: Callable[[], bool], moved: Callable[[int], None]) -> bool:
        """Whether it is whole now, and in its place; asks after each part whether to go on.

        Raises:
            Changed: it has another content by now; what had arrived is removed.
            Unavailable: disk_full, directory_unusable.
        """
        try:
            self._destination.parent.mkdir(parents=True, exist_ok=True)
            while (fd := _opened_alone(self._partial)) is None:  # another call fetches it
                await anyio.sleep(_TRIED_S)
                if not goes_on():
                    return False
            try:
                if self._is_there():
                    self._partial.unlink()
                    moved(self._content.size)
                    return True
                whole = await self._fill(fd, goes_on, moved)
                if not whole:
                    await to_thread.run_sync(os.fsync, fd)  # the next call relies on it
                    return False
                os.utime(fd, ns=(self._content.mtime_ns, self._content.mtime_ns))
                os.replace(self._partial, self._destination)
            except Changed:
                self._partial.unlink(missing_ok=True)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            raise unwritable(self._destination, error) from None
        return True

    def _is_there(self) -> bool:
        """Whether another call has put it in its place meanwhile."""
        with suppress(OSError):
            found = os.lstat(self._destination)
            return (
                S_ISREG(found.st_mode)
                and found.st_size == self._content.size > 0
                and found.st_mtime_ns == self._content.mtime_ns
            )
        return False

    async def _fill(self, fd: int, goes_on: Callable[[], bool], moved: Callable[[int], None]) -> bool:
        start = await self._resumed(fd)
        moved(start)
        ranges: deque[_Range] = deque()
        planned = self._planned(start)
        try:
            while True:
                while len(ranges) < _AT_ONCE and (one := await anext(planned, None)) is not None:
                    ranges.append(one)
                if not ranges:
                    break
                one = ranges[0]
                await self._written(fd, one)
                ranges.popleft()
                moved(one.end - one.start)
                if one.end < self._content.size and not goes_on():
                    return False
        finally:
            await planned.aclose()
            await _cancelled([one.task for one in ranges if one.task is not None])
        if not self._content.size:
            await self._fill_sizeless(fd)
        await self._origin.require(self._path, self._content)
        return True

    async def _resumed(self, fd: int) -> int:
        """How much of it is there; nothing, where its end is not as it was read."""
        there = os.fstat(fd).st_size
        if 0 < there <= self._content.size:
            length = min(there, _COMPARED)
            theirs = await self._origin.digest(self._path, self._content, there - length, length)
            if sha256(await to_thread.run_sync(os.pread, fd, length, there - length)).digest() == theirs:
                return there
        os.ftruncate(fd, 0)
        return 0

    async def _planned(self, at: int) -> AsyncGenerator[_Range, None]:
        """What is to be done from an offset on, in order; reads begin when they are given out."""
        size = self._content.size
        while at < size:
            extents = await self._origin.extents(self._path, self._content, at)
            for start, end in extents:
                if start > at:
                    yield _Range(at, start, None)
                for first in range(start, end, self._origin.part):
                    last = min(end, first + self._origin.part)
                    yield _Range(first, last, asyncio.create_task(self._read(first, last)))
                at = end
            if not extents:
                yield _Range(at, size, None)
                at = size

    async def _read(self, start: int, end: int) -> Bytes:
        data = await self._origin.read(self._path, self._content, start, end - start)
        if len(data) != end - start:
            raise Changed
        return data

    async def _written(self, fd: int, one: _Range) -> None:
        if one.task is None:
            os.ftruncate(fd, one.end)
        else:
            await to_thread.run_sync(_write, fd, await one.task, one.start)

    async def _fill_sizeless(self, fd: int) -> None:
        """A file of the kernel's, which tells no size."""
        at = 0
        while data := await self._origin.read(self._path, self._content, at, self._origin.part):
            _write(fd, data, at)
            at += len(data)


async def _cancelled(tasks: list[asyncio.Task[Bytes]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def partial_of(destination: Path, content: Content) -> Path:
    name = f".{destination.name}.{content.size}-{content.mtime_ns}.part"
    if len(os.fsencode(name)) > os.pathconf("/", "PC_NAME_MAX"):
        name = f".{sha256(os.fsencode(name)).hexdigest()[:32]}.part"
    return destination.with_name(name)


def put_whole(destination: Path, content: Content, data: Bytes) -> None:
    """A small file, in its place in one go. Blocks.

    Raises:
        Unavailable: disk_full, directory_unusable.
    """
    partial = partial_of(destination, content)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        while (fd := _opened_alone(partial)) is None:
            time.sleep(_TRIED_S)
        try:
            os.ftruncate(fd, 0)
            _write(fd, data, 0)
            os.utime(fd, ns=(content.mtime_ns, content.mtime_ns))
            os.replace(partial, destination)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise unwritable(destination, error) from None


def _opened_alone(partial: Path) -> int | None:
    """A descriptor that nobody else has, until it is closed; None: somebody has one. Two that fill one file
    would cut off what the other wrote.

    Raises:
        OSError: it cannot be made.
    """
    fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        flock(fd, LOCK_EX | LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.lstat(partial)):
            return fd
    except (BlockingIOError, FileNotFoundError):  # it was moved to its place, or removed
        pass
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):  # nobody can lock there
            return fd
        os.close(fd)
        raise
    os.close(fd)
    return None


def _write(fd: int, data: Bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def unwritable(destination: Path, error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(
            "disk_full",
            f"{quoted(str(destination))} cannot be written: {error.strerror}",
            "Make room and call again, which goes on from there, or name another destination.",
        )
    return Unavailable(
        "directory_unusable",
        f"{quoted(str(destination))} cannot be written: {error.strerror}",
        "Name another destination.",
    )
