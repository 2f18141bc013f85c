"""Bytes of versions on a host: fetched once whoever asks, read ahead, kept on disk, and shortly in memory.

A full disk costs speed and nothing else: what cannot be written is fetched again when it is read again.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import anyio.abc
import anyio.to_thread

from ..errors import Unavailable
from .cache_files import CacheFiles
from .eviction import Usage
from .manifest import FileRef
from .ranges import Ranges
from .readahead import WHOLE, Stream, pieces, plan
from .source import Bytes, Gone, Reads, Unreadable

__all__ = ["ByteCache"]

logger = logging.getLogger(__name__)

_MOST_HOT = 32 * 1024 * 1024
_MOST_STORING = 64 * 1024 * 1024  # a disk that is slower than the network does not get all
_MOST_ITEMS = 4096


@dataclass(slots=True, eq=False)
class _Piece:
    """A range that is fetched, or was a moment ago: with `data` from when it is done until it is dropped."""

    start: int
    end: int
    done: anyio.Event = field(default_factory=anyio.Event)
    data: Bytes | None = None
    error: Exception | None = None
    is_settled: bool = False
    """Written, or given up."""


@dataclass(slots=True, eq=False)
class _Handle:
    """An open cache file, closed when it is neither wanted nor written to any more. The loop's."""

    fd: int
    users: int = 1

    def release(self) -> None:
        self.users -= 1
        if not self.users:
            os.close(self.fd)


@dataclass(slots=True, eq=False)
class _Item:
    file: FileRef
    stored: Ranges = field(default_factory=Ranges)
    pieces: list[_Piece] = field(default_factory=list)
    stream: Stream = field(default_factory=Stream)
    handle: _Handle | None = None
    losses: int = 0
    """How often all that was stored of it was dropped."""
    is_whole: bool = False

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """What is neither stored, nor in memory, nor on its way."""
        missing = Ranges()
        for gap in self.stored.missing(start, end):
            missing.add(*gap)
        for piece in self.pieces:
            missing.discard(piece.start, piece.end)
        return missing.parts()

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.release()


class ByteCache:
    """A `Reads` in front of others: the first of `upstream` that has a version gives it.

    It fetches in the given task group, so that a reader who leaves ends nobody else's fetch.
    """

    def __init__(
        self, files: CacheFiles, upstream: Sequence[Reads], group: anyio.abc.TaskGroup, limit: int
    ) -> None:
        self.fetched = 0
        self.refused_by_disk = 0
        self._files = files
        self._upstream = upstream
        self._group = group
        self._usage = Usage(limit)
        self._items: OrderedDict[int, _Item] = OrderedDict()
        self._hot: deque[tuple[_Item, _Piece]] = deque()
        self._hot_bytes = 0
        self._storing = 0
        self._writing = anyio.Lock()

    async def recall(self) -> None:
        """Counts what an earlier life left here."""
        for version, size in await anyio.to_thread.run_sync(lambda: list(self._files.whole())):
            self._usage.found(version, size)
        self._make_room(0)

    @property
    def on_disk(self) -> int:
        """Bytes."""
        return self._usage.total

    @property
    def unwritten(self) -> int:
        """Bytes that are on their way to the disk."""
        return self._storing

    def opened(self, file: FileRef) -> None:
        """A program has it open: others go before it does."""
        self._usage.opened(file.version)

    def closed(self, file: FileRef) -> None:
        self._usage.closed(file.version)

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        end = min(offset + length, file.size)
        if offset >= end:
            return b""
        item = self._item(file)
        if not item.is_whole:
            item.stream = item.stream.after(offset, end - offset)
            now, ahead = plan(item.stream, file.size, offset, end - offset)
            self._want(item, *now)
            self._want(item, *ahead)
        mine: list[_Piece] = []  # they may be dropped from the item before this task runs again
        while True:
            mine += [one for one in item.pieces if one.start < end and one.end > offset and one not in mine]
            for piece in mine:
                if not piece.done.is_set():
                    await piece.done.wait()
                if piece.error is not None:
                    raise piece.error
            if (data := self._found(item, mine, offset, end)) is not None:
                return data
            self._want(item, offset, end)

    def has(self, file: FileRef) -> bool:
        """Whether all of it is here, or on its way."""
        item = self._item(file)
        return item.is_whole or not item.gaps(0, file.size)

    def fetch_ahead(self, files: Sequence[FileRef]) -> None:
        """Has small files fetched together; those that cannot be had are left to whoever reads them."""
        wanted = [(self._item(file), _Piece(0, file.size)) for file in files if not self.has(file)]
        for item, piece in wanted:
            item.pieces.append(piece)
        if wanted:
            self._group.start_soon(self._fetch_whole, wanted)

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        self.fetch_ahead(files)
        found: list[Bytes | None] = []
        for file in files:
            try:
                found.append(await self.read(file, 0, file.size))
            except (Gone, Unreadable, Unavailable):
                found.append(None)
        return found

    def close(self) -> None:
        for item in self._items.values():
            item.close()
        self._items.clear()

    def _item(self, file: FileRef) -> _Item:
        item = self._items.get(file.version)
        if item is None:
            item = self._items[file.version] = _Item(file)
            if self._files.has_whole(file.version, file.size):
                self._usage.found(file.version, file.size)
                item.stored.add(0, file.size)
                item.is_whole = True
            if len(self._items) > _MOST_ITEMS:
                self._forget_idle()
        self._items.move_to_end(file.version)
        return item

    def _forget_idle(self) -> None:
        for version, item in tuple(self._items.items())[: _MOST_ITEMS // 4]:
            if item.is_whole and not item.pieces:
                item.close()
                del self._items[version]

    def _found(self, item: _Item, hot: Sequence[_Piece], start: int, end: int) -> Bytes | None:
        """A range, from memory as far as that has it, else from disk; None: not all of it is here."""
        parts: list[Bytes] = []
        while start < end:
            part = _in_memory(hot, start, end)
            if part is None:
                stop = min(end, item.stored.end_of(start))
                part = self._stored(item, start, stop) if stop > start else None
            if part is None:
                return None
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _stored(self, item: _Item, start: int, end: int) -> bytes | None:
        try:
            if item.handle is None:
                item.handle = _Handle(self._files.open_whole(item.file.version))
            data = os.pread(item.handle.fd, end - start, start)
        except OSError:
            data = b""
        if item.file.size <= WHOLE:
            item.close()  # it is in the kernel's pages from now on
        if len(data) == end - start:
            self._usage.used(item.file.version)
            return data
        self._lose(item)  # somebody removed or cut it
        return None

    def _want(self, item: _Item, start: int, end: int) -> None:
        for gap in item.gaps(start, end):
            for first, last in pieces(*gap):
                piece = _Piece(first, last)
                item.pieces.append(piece)
                self._group.start_soon(self._fetch, item, piece)

    async def _fetch(self, item: _Item, piece: _Piece) -> None:
        try:
            piece.data = await self._fetched(item.file, piece.start, piece.end - piece.start)
        except Exception as error:
            piece.error = error
            item.pieces.remove(piece)
            return
        finally:
            piece.done.set()
        self.fetched += piece.end - piece.start
        self._keep_hot(item, piece)
        await self._store(item, piece)

    async def _fetch_whole(self, wanted: Sequence[tuple[_Item, _Piece]]) -> None:
        files = [item.file for item, _ in wanted]
        found: list[Bytes | None] = [None] * len(files)
        for reads in self._upstream:
            with suppress(Unavailable):
                found = await reads.read_whole(files)
                break
        for (item, piece), data in zip(wanted, found, strict=True):
            if data is None or len(data) != item.file.size:
                item.pieces.remove(piece)
            else:
                piece.data = data
                self.fetched += len(data)
                self._keep_hot(item, piece)
            piece.done.set()
        for item, piece in wanted:
            if piece in item.pieces:
                await self._store(item, piece)

    async def _fetched(self, file: FileRef, offset: int, length: int) -> Bytes:
        problem: Exception = Gone()
        for reads in self._upstream:
            try:
                data = await reads.read(file, offset, length)
            except (Gone, Unreadable, Unavailable) as error:
                problem = error
                continue
            if len(data) == length:
                return data
        raise problem

    def _keep_hot(self, item: _Item, piece: _Piece) -> None:
        self._hot.append((item, piece))
        self._hot_bytes += piece.end - piece.start

    def _cool(self) -> None:
        """Drops from memory what has been there longest, but for what has yet to be written."""
        for _ in range(len(self._hot)):
            if self._hot_bytes <= _MOST_HOT:
                break
            item, piece = self._hot.popleft()
            if piece.is_settled:
                self._hot_bytes -= piece.end - piece.start
                item.pieces.remove(piece)
            else:
                self._hot.append((item, piece))

    async def _store(self, item: _Item, piece: _Piece) -> None:
        assert piece.data is not None
        length = piece.end - piece.start
        self._storing += length
        if length > self._usage.limit:
            self._refuse(length, "it is larger than the cache may be")
        elif self._storing > _MOST_STORING:
            self._refuse(length, "the disk is slower than the network")
        else:
            try:
                async with self._writing:  # one by one: the room that is made for a piece is its own
                    self._make_room(length)
                    if await self._written(item, piece.start, piece.data):
                        self._count(item, piece)
            except OSError as error:
                self._refuse(length, error.strerror or str(error))
        self._storing -= length
        piece.is_settled = True
        self._cool()

    def _refuse(self, length: int, why: str) -> None:
        if not self.refused_by_disk:
            logger.warning("the cache does not take all (%s): what is read again is fetched again", why)
        self.refused_by_disk += length

    def _count(self, item: _Item, piece: _Piece) -> None:
        self._usage.used(item.file.version, piece.end - piece.start)
        item.stored.add(piece.start, piece.end)
        item.is_whole = len(item.stored) == item.file.size
        if item.is_whole and item.handle is not None:
            with suppress(OSError):
                self._files.finish(item.file.version)

    async def _written(self, item: _Item, start: int, data: Bytes) -> bool:
        """Whether it is on disk now; False: all of the version was dropped meanwhile.

        In a thread whatever its size: a disk that is behind may hold up the smallest write.

        Raises:
            OSError: the disk is full.
        """
        version, losses = item.file.version, item.losses
        if item.handle is None and len(data) == item.file.size <= WHOLE:
            await anyio.to_thread.run_sync(self._files.put, version, data)
            if item.losses != losses:
                self._files.remove(version)
            return item.losses == losses
        if item.handle is None:
            item.handle = _Handle(self._files.open_part(version))
        handle = item.handle
        handle.users += 1
        try:
            await anyio.to_thread.run_sync(_write, handle.fd, start, data)
        finally:
            handle.release()
        return item.losses == losses

    def _make_room(self, room: int) -> None:
        for version in self._usage.victims(room):
            item = self._items.get(version)
            if item is not None:
                self._lose(item)
            else:
                self._usage.removed(version)
                self._files.remove(version)

    def _lose(self, item: _Item) -> None:
        """Nothing of it is on disk any more; what is in memory or on its way stays."""
        item.close()
        self._usage.removed(item.file.version)
        self._files.remove(item.file.version)
        item.is_whole = False
        item.losses += 1
        item.stored = Ranges()


def _in_memory(hot: Sequence[_Piece], start: int, end: int) -> Bytes | None:
    """What is there from `start` on, of one piece."""
    for piece in hot:
        if piece.data is not None and piece.start <= start < piece.end:
            return memoryview(piece.data)[start - piece.start : end - piece.start]
    return None


def _write(fd: int, start: int, data: Bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], start + done)
