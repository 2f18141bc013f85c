"""Bytes of versions on a host: fetched once whoever asks, read ahead, kept on disk, and shortly in memory.

A full disk costs speed and nothing else: what cannot be written is fetched again when it is read again.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress

import anyio
import anyio.abc
import anyio.to_thread

from ..errors import Unavailable
from .cache_files import CacheFiles
from .cache_items import Handle, Item, Piece, in_memory
from .direct import NOWHERE, write
from .eviction import Usage
from .landing import LEAST_LANDED
from .manifest import FileRef
from .pacing import Pace
from .packs import batches
from .ranges import Ranges
from .readahead import WHOLE, pieces, plan
from .source import Bytes, Gone, Reads, Unreadable

__all__ = ["ByteCache"]

logger = logging.getLogger(__name__)

_MOST_HOT = 32 * 1024 * 1024
_MOST_ITEMS = 4096
_MOST_HOT_PIECES = 1024
_MOST_COOLED = 64
_WRITES = 2


class ByteCache:
    """A `Reads` in front of others: the first of `upstream` that has a version gives it.

    It fetches in the given task group, so that a reader who leaves ends nobody else's fetch.
    """

    def __init__(
        self, files: CacheFiles, upstream: Sequence[Reads], group: anyio.abc.TaskGroup, limit: int
    ) -> None:
        self.fetched = 0
        self.pace = Pace()
        self.refused_by_disk = 0
        self._files = files
        self._upstream = upstream
        self._group = group
        self._usage = Usage(limit)
        self._items: OrderedDict[int, Item] = OrderedDict()
        self._hot: deque[tuple[Item, Piece]] = deque()
        self._hot_bytes = 0
        self._writing = anyio.Semaphore(_WRITES)
        self._to_be_written = 0
        self._forget_at = _MOST_ITEMS

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
        return self.pace.waiting

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
        mine: list[Piece] = []  # they may be dropped from the item before this task runs again
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
        wanted = [(self._item(file), Piece(0, file.size)) for file in files if not self.has(file)]
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

    def give_way(self) -> None:
        """Frees all of the disk that it has: somebody needs the room, who cannot fetch again."""
        self._make_room(self._usage.limit)

    def close(self) -> None:
        for item in self._items.values():
            item.close()
        self._items.clear()

    def _item(self, file: FileRef) -> Item:
        item = self._items.get(file.version)
        if item is None:
            item = self._items[file.version] = Item(file)
            if self._files.has_whole(file.version, file.size):
                self._usage.found(file.version, file.size)
                item.stored.add(0, file.size)
                item.is_whole = True
            if len(self._items) > self._forget_at:
                self._forget_idle()
        self._items.move_to_end(file.version)
        return item

    def _forget_idle(self) -> None:
        """Those that lose nothing: a large one in parts has its file, which another item would cut."""
        for version, item in tuple(self._items.items())[: _MOST_ITEMS // 2]:
            is_nowhere = item.file.size <= WHOLE and not len(item.stored)
            if (item.is_whole or is_nowhere) and not item.pieces:
                item.close()
                del self._items[version]
        self._forget_at = max(_MOST_ITEMS, len(self._items) + _MOST_ITEMS // 4)

    def _found(self, item: Item, hot: Sequence[Piece], start: int, end: int) -> Bytes | None:
        """A range, from memory as far as that has it, else from disk; None: not all of it is here."""
        parts: list[Bytes] = []
        while start < end:
            piece = in_memory(hot, start)
            part = None if piece is None else self._of_piece(item, piece, start, end)
            if part is None:
                stop = min(end, item.stored.end_of(start))
                part = self._stored(item, start, stop) if stop > start else None
            if part is None:
                return None
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _of_piece(self, item: Item, piece: Piece, start: int, end: int) -> Bytes:
        assert piece.data is not None
        part = memoryview(piece.data)[start - piece.start : end - piece.start]
        piece.read += len(part)
        self._let_go(item, piece)
        return part

    def _stored(self, item: Item, start: int, end: int) -> bytes | None:
        try:
            if item.handle is None:
                fd, base = self._files.open_whole(item.file.version)
                item.handle = Handle(fd, base=base)
            data = os.pread(item.handle.fd, end - start, item.handle.base + start)
        except OSError:
            data = b""
        if item.file.size <= WHOLE:
            item.close()  # it is in the kernel's pages from now on
        if len(data) == end - start:
            self._usage.used(item.file.version)
            return data
        self._lose(item)  # somebody removed or cut it
        return None

    def _want(self, item: Item, start: int, end: int) -> None:
        for gap in item.gaps(start, end):
            for first, last in pieces(*gap):
                piece = Piece(first, last)
                item.pieces.append(piece)
                self._group.start_soon(self._fetch, item, piece)

    async def _fetch(self, item: Item, piece: Piece) -> None:
        try:
            await self.pace.follow()
            piece.data = await self._fetched(item.file, piece.start, piece.end - piece.start)
        except Exception as error:
            self._failed(item, piece, error)
            return
        except BaseException:  # the end: a reader that found neither bytes nor an error would look for ever
            self._failed(item, piece, Gone())
            raise
        finally:
            piece.done.set()
        self.fetched += piece.end - piece.start
        self._keep_hot(item, piece)
        await self._store([(item, piece)])

    def _failed(self, item: Item, piece: Piece, error: Exception) -> None:
        piece.error = error
        item.pieces.remove(piece)

    async def _fetch_whole(self, wanted: Sequence[tuple[Item, Piece]]) -> None:
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
        kept = [(one, one[1].end) for one in wanted if one[1].data is not None]
        for batch in batches(kept, self._usage.limit):
            await self._store(batch)

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

    def _keep_hot(self, item: Item, piece: Piece) -> None:
        self._hot.append((item, piece))
        self._hot_bytes += piece.end - piece.start

    def _let_go(self, item: Item, piece: Piece) -> None:
        """Drops a large piece from memory that was read and is on disk: its memory, in use again at once, is
        worth more than new memory. Who reads for other hosts keeps it: they are to read it in a moment.
        """
        length = piece.end - piece.start
        is_over = piece.read >= length >= LEAST_LANDED and piece in item.pieces
        if is_over and not self.pace.is_lent and item.stored.has(piece.start, piece.end):
            self._hot.remove((item, piece))
            self._hot_bytes -= length
            item.pieces.remove(piece)

    def _cool(self) -> None:
        """Drops from memory what has been there longest, but for what has yet to be written."""
        for _ in range(min(len(self._hot), _MOST_COOLED)):
            if self._hot_bytes <= _MOST_HOT and len(self._hot) <= _MOST_HOT_PIECES:
                break
            item, piece = self._hot.popleft()
            if piece.is_settled:
                self._hot_bytes -= piece.end - piece.start
                item.pieces.remove(piece)
            else:
                self._hot.append((item, piece))

    async def _store(self, stored: Sequence[tuple[Item, Piece]]) -> None:
        """One piece; or whole small files, in a pack of theirs."""
        length = sum(piece.end - piece.start for _, piece in stored)
        is_to_be = self.pace.began(length)
        if length > self._usage.limit:
            self._refuse(length, "it is larger than the cache may be")
        elif not is_to_be:
            self._refuse(length, "the disk is slower than the network")
        else:
            try:
                async with self._writing:
                    await self._write(stored, length)
            except OSError as error:
                self._refuse(length, error.strerror or str(error))
        self.pace.ended(length)
        for item, piece in stored:
            piece.is_settled = True
            self._let_go(item, piece)
            self._cool()

    async def _write(self, stored: Sequence[tuple[Item, Piece]], length: int) -> None:
        """With room of its own, which those that are written at the same time have besides.

        Raises:
            OSError: the disk is full.
        """
        self._to_be_written += length
        try:
            self._make_room(self._to_be_written)
            if self._files.lacking(self._to_be_written) > 0:
                raise OSError(errno.ENOSPC, "its disk is nearly full")
            await (self._written(*stored[0]) if len(stored) == 1 else self._packed(stored))
        finally:
            self._to_be_written -= length

    def _refuse(self, length: int, why: str) -> None:
        if not self.refused_by_disk:
            logger.warning("the cache does not take all (%s): what is read again is fetched again", why)
        self.refused_by_disk += length

    def _count(self, item: Item, piece: Piece) -> None:
        self._usage.used(item.file.version, piece.end - piece.start)
        item.stored.add(piece.start, piece.end)
        item.is_whole = len(item.stored) == item.file.size
        if item.is_whole and item.handle is not None:
            with suppress(OSError):
                self._files.finish(item.file.version)

    async def _written(self, item: Item, piece: Piece) -> None:
        """It is on disk then, unless all of the version was dropped meanwhile.

        In a thread whatever its size: a disk that is behind may hold up the smallest write.

        Raises:
            OSError: the disk is full.
        """
        assert piece.data is not None
        version, losses, data = item.file.version, item.losses, piece.data
        if item.handle is None and len(data) == item.file.size <= WHOLE:
            await anyio.to_thread.run_sync(self._files.put, version, data)
            if item.losses != losses:
                self._files.remove(version)
        else:
            if item.handle is None:
                item.handle = Handle(*self._files.open_part(version))
            handle = item.handle
            handle.users += 1
            try:
                direct = NOWHERE if self.pace.is_behind else handle.direct
                await anyio.to_thread.run_sync(write, handle.fd, direct, piece.start, data)
            finally:
                handle.release()
        if item.losses == losses:
            self._count(item, piece)

    async def _packed(self, stored: Sequence[tuple[Item, Piece]]) -> None:
        """As `_written`."""
        losses = [item.losses for item, _ in stored]
        contents = [(item.file.version, piece.data or b"") for item, piece in stored]
        pack = self._files.pack()
        await anyio.to_thread.run_sync(self._files.put_together, pack, contents)
        self._files.packed(pack, contents)
        for (item, piece), before in zip(stored, losses, strict=True):
            if item.losses == before:
                self._count(item, piece)
            else:
                self._files.remove(item.file.version)

    def _make_room(self, room: int) -> None:
        for version in self._usage.victims(room, self._files.lacking(room)):
            item = self._items.get(version)
            if item is not None:
                self._lose(item)
            else:
                self._usage.removed(version)
                self._files.remove(version)

    def _lose(self, item: Item) -> None:
        """Nothing of it is on disk any more; what is in memory or on its way stays."""
        item.close()
        self._usage.removed(item.file.version)
        self._files.remove(item.file.version)
        item.is_whole = False
        item.losses += 1
        item.stored = Ranges()
