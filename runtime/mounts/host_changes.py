"""What a host writes, done: the view, the log and the files of its overlay, always in step.

All but copy-ups happens at once, on the loop: no handler sees half of it. A change is in the log before it
is done, and in the view after. Paths are of the merged tree, in bytes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from .manifest import DIRECTORY, FILE, LINK, Entry, FileRef, split
from .overlay import NOTHING, OTHER, WRITTEN, HostCopy, Overlay, base_of
from .overlay_log import CLASHED, OVER, REMOVED, TOLD, OverlayLog, Record
from .source import Gone, Reads
from .upper import Stamp, Upper, write_all

__all__ = ["LOG", "HostChanges"]

LOG = "log"
_PIECE = 4 * 1024 * 1024
_AT_ONCE = 8
_MOST_ENTRIES = 10_000
_MOST_BYTES = 1024**3
_ATTEMPTS = 4
_MOST_NOTED = 20_000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


class HostChanges:
    """`reads` has the client's bytes. Whoever shows the tree sets `on_copied`, told of each path that the
    host has from now on, with the same content; and `on_going`, told of one that is about to lose its name.
    `give_way` frees what it can of the disk.

    What changes something raises OSError, as the system would; ENOSPC when there is no room for the bytes,
    or to remember it.
    """

    def __init__(self, directory: Path, overlay: Overlay, reads: Reads) -> None:
        self.overlay = overlay
        self.upper = Upper(directory)
        self.log = OverlayLog(directory / LOG)
        self.untold: list[HostCopy] = []
        self.pristine: dict[bytes, Stamp] = {}
        """Files that were copied up, as they were then: who opens one to write may leave it as it is."""
        self.on_copied: Callable[[bytes], object] = lambda _: None
        self.on_going: Callable[[bytes], object] = lambda _: None
        self.give_way: Callable[[], object] = lambda: None
        self._reads = reads
        self._noted = 0
        self._copying: dict[bytes, anyio.Event] = {}
        self._recall()

    def close(self) -> None:
        self.log.close()

    def create(self, path: bytes, mode: int) -> int:
        """A new file, open for both."""
        base = self._about_to_write(path)
        fd = self.with_room(lambda: self.upper.create(path, mode))
        self.overlay.set_written(path, FILE, base)
        return fd

    def make_directory(self, path: bytes, mode: int) -> None:
        base = self._about_to_write(path)
        self.with_room(lambda: self.upper.make_directory(path, mode))
        self.overlay.set_written(path, DIRECTORY, base)

    def make_link(self, path: bytes, target: bytes) -> None:
        base = self._about_to_write(path)
        self.with_room(lambda: os.symlink(target, self.upper.path(path)))
        self.overlay.set_written(path, LINK, base)

    def make_node(self, path: bytes, mode: int) -> None:
        """A FIFO or a socket."""
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            raise OSError(errno.EPERM, "no devices")
        base = self._about_to_write(path)
        self.with_room(lambda: self.upper.make_node(path, mode))
        self.overlay.set_written(path, OTHER, base)

    def remove(self, path: bytes) -> None:
        """A name that is there; a directory must be empty."""
        written, base, parent = self.overlay.written(path), self.overlay.base(path), split(path)[0]
        self.materialize(parent)
        if base != NOTHING:
            self._note([Record(REMOVED, path, base)])
        if written is None:
            os.utime(self.upper.path(parent))
        elif written.entry.kind == DIRECTORY:
            os.rmdir(self.upper.path(path))
        else:
            self.on_going(path)
            self.upper.remove(path)
            self.pristine.pop(path, None)
        self.overlay.set_removed(path, base)

    def rename(self, old: bytes, new: bytes) -> None:
        """What the host has, as a whole, to a name that is free or may be replaced."""
        self.materialize(split(new)[0])
        moving = self.overlay.moving(old, new)
        self._note(
            [
                *(Record(REMOVED, path, one.base) for path, _, one, _ in moving if one.base != NOTHING),
                *(Record(OVER, path, base) for _, path, _, base in moving if base != NOTHING),
            ]
        )
        self.on_going(new)
        self.with_room(lambda: self.upper.rename(old, new))
        for path, _, one, _ in moving:
            self.pristine.pop(path, None)
            self.overlay.set_removed(path, one.base)
        for _, path, one, base in moving:
            self.overlay.set_written(path, one.entry.kind, base)

    def materialize(self, path: bytes) -> None:
        """Has a directory of the client's among the host's files too, as it is shown."""
        if self.overlay.is_written(path):
            return
        parent = split(path)[0]
        self.materialize(parent)
        entry = self.overlay.entry(path)
        if entry is None or entry.kind != DIRECTORY:
            raise FileNotFoundError(errno.ENOENT, "it went")
        base = self.overlay.base(path)
        self._note([Record(OVER, path, base)])
        with self._dated_as_before(parent):
            self.with_room(lambda: self.upper.make_directory(path, entry.mode))
        os.utime(self.upper.path(path), ns=(entry.mtime_ns, entry.mtime_ns))
        self.overlay.set_written(path, DIRECTORY, base)
        self.on_copied(path)

    async def copy_up(self, path: bytes, length: int | None = None) -> None:
        """Has a name of the client's among the host's own, of a file only so many bytes where that is said.

        Raises:
            Gone: it is not there any more, or another version.
            Unreadable, Unavailable: its bytes cannot be had.
        """
        while True:
            entry = self.overlay.entry(path)
            if entry is None:
                raise Gone
            if entry.version == WRITTEN:
                return None
            if (copying := self._copying.get(path)) is not None:
                await copying.wait()
                continue
            if entry.kind == DIRECTORY:
                return self.materialize(path)
            self._copying[path] = done = anyio.Event()
            try:
                return await self._copy(path, entry, length)
            finally:
                del self._copying[path]
                done.set()

    async def copy_up_all(self, path: bytes) -> None:
        """A directory with all that is seen in it.

        Raises:
            OSError: EXDEV, it is too much: the program then copies by itself.
        """
        await self.copy_up(path)
        for _ in range(_ATTEMPTS):
            found = list(self.overlay.lower_below(path))
            if not found:
                return
            if len(found) > _MOST_ENTRIES or sum(entry.size for _, entry in found) > _MOST_BYTES:
                raise OSError(errno.EXDEV, "too much to be moved at once")
            limiter = anyio.CapacityLimiter(_AT_ONCE)

            async def copy(inside: bytes, limiter: anyio.CapacityLimiter = limiter) -> None:
                async with limiter:
                    with suppress(Gone):  # looked at again
                        await self.copy_up(inside)

            async with anyio.create_task_group() as tasks:
                for inside, _ in found:
                    tasks.start_soon(copy, inside)
        raise OSError(errno.EXDEV, "it changes all the time")

    def with_room(self, do: Callable[[], T]) -> T:
        """Once more, where the disk is full and others can give way."""
        try:
            return do()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
        self.give_way()
        return do()

    def told(self) -> None:
        """The client knows of all conflicts."""
        self.untold.clear()
        with suppress(OSError):  # they are told twice, at worst
            self.log.add([Record(TOLD)])

    def rewrite_log(self) -> None:
        """After much that was in it does not hold any more."""
        self.log.replace(self.records())

    def records(self) -> list[Record]:
        """What the log has to say of all that there is."""
        written = [
            Record(OVER, path, one.base) for path, one in self.overlay.below(b"") if one.base != NOTHING
        ]
        removed = [Record(REMOVED, path, base) for path, base in self.overlay.removed()]
        return [*written, *removed, *(Record(CLASHED, copy.path, kept=copy.kept) for copy in self.untold)]

    async def _copy(self, path: bytes, entry: Entry, length: int | None) -> None:
        if entry.kind == LINK:
            self._land(self.with_room(lambda: self.upper.begin_link(entry.target)), path, entry)
            return
        size = entry.size if length is None else min(length, entry.size)
        file = FileRef(path, entry.version, entry.size)
        fd, fresh = self.with_room(self.upper.begin)
        try:
            for offset in range(0, size, _PIECE):
                data = await self._reads.read(file, offset, min(_PIECE, size - offset))
                await self._fill(fd, offset, data)
            self._land(fresh, path, entry)
        except BaseException:
            self.upper.drop(fresh)
            raise
        finally:
            os.close(fd)

    async def _fill(self, fd: int, offset: int, data: bytes | memoryview) -> None:
        try:
            await anyio.to_thread.run_sync(write_all, fd, offset, data)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self.give_way()
            await anyio.to_thread.run_sync(write_all, fd, offset, data)

    def _land(self, fresh: bytes, path: bytes, entry: Entry) -> None:
        if self.overlay.entry(path) != entry:
            self.upper.drop(fresh)
            raise Gone
        parent, base = split(path)[0], self._about_to_write(path)
        with self._dated_as_before(parent):
            self.with_room(lambda: self.upper.land(fresh, path, entry))
        self.pristine[path] = self.upper.stamp(path)
        self.overlay.set_written(path, entry.kind, base)
        self.on_copied(path)

    def _about_to_write(self, path: bytes) -> int:
        self.materialize(split(path)[0])
        base = self.overlay.base(path)
        if base != NOTHING:
            self._note([Record(OVER, path, base)])
        return base

    def _note(self, records: list[Record]) -> None:
        self.with_room(lambda: self.log.add(records))
        self._noted += len(records)
        if self._noted > _MOST_NOTED:  # the same names again and again, most likely
            self._noted = 0
            self.log.compact(self.records())

    @contextmanager
    def _dated_as_before(self, directory: bytes) -> Iterator[None]:
        absolute = self.upper.path(directory)
        before = os.stat(absolute).st_mtime_ns
        yield
        os.utime(absolute, ns=(before, before))

    def _recall_pristine(self, path: bytes, base: int) -> None:
        """Whoever writes to a file changes its time."""
        entry = self.overlay.manifest.entry(path)
        if entry is not None and base_of(entry) == base:
            found = os.lstat(self.upper.path(path))
            as_copied = (entry.mode, entry.size, entry.mtime_ns)
            if (stat.S_IMODE(found.st_mode), found.st_size, found.st_mtime_ns) == as_copied:
                self.pristine[path] = self.upper.stamp(path)

    def _recall(self) -> None:
        """What an earlier process of this mount, or an earlier mount, has left."""
        known = self.log.read()
        for path, kind in self.upper.scan():
            base = known.base(path)
            self.overlay.set_written(path, kind, base)
            if kind == FILE and base != NOTHING:
                self._recall_pristine(path, base)
        for path, base in known.removed.items():
            if not self.overlay.is_written(path):
                self.overlay.set_removed(path, base)
        self.untold = known.untold
        self.log.compact(self.records())
