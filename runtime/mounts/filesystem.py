"""What the kernel is answered: names and attributes from the manifest, bytes from the cache. Read-only; what
writes is in `writing`.

Imported in the mount process alone: it needs pyfuse3.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import pyfuse3

from ..errors import Unavailable
from .cache import ByteCache
from .manifest import DIRECTORY, FILE, LINK, Entry, FileRef, split
from .neighbours import Neighbours
from .nodes import Node, NodeTable
from .overlay import OTHER, WRITTEN, Overlay
from .readahead import WHOLE
from .source import Bytes, Gone, Unreadable

__all__ = ["Counters", "FileSystem", "Opened"]

logger = logging.getLogger(__name__)

_FOR_EVER_S = 86_400.0
_TYPES = {FILE: stat.S_IFREG, DIRECTORY: stat.S_IFDIR, LINK: stat.S_IFLNK, OTHER: stat.S_IFIFO}
_BLOCK = 128 * 1024
_NEXT_VERSION_S = 2.0


@dataclass(slots=True)
class Counters:
    lookups: int = 0
    attributes: int = 0
    opens: int = 0
    reads: int = 0
    stale: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Listing:
    node: Node
    names: list[bytes]


@dataclass(slots=True)
class Opened:
    """A handle of a program; `file` is what was opened, None where that was the host's own."""

    node: Node
    file: FileRef | None


class FileSystem(pyfuse3.Operations):
    """`next_change` waits until the manifest has changed; `on_failure` hears of reads that found nobody.
    `on_greeted` is called when the kernel and we know each other.
    """

    def __init__(
        self,
        table: NodeTable,
        overlay: Overlay,
        cache: ByteCache,
        next_change: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], object],
    ) -> None:
        super().__init__()
        self.counters = Counters()
        self.on_greeted: Callable[[], object] = lambda: None
        self._on_failure = on_failure
        self._table = table
        self._overlay = overlay
        self._cache = cache
        self._next_change = next_change
        self._uid, self._gid = os.getuid(), os.getgid()
        self._opened: dict[int, Opened] = {}
        self._listings: dict[int, _Listing] = {}
        self._handles = itertools.count(1)
        self._neighbours = Neighbours()
        self._scratch = self._new_attributes()  # read before anything else runs: one is enough
        self._absent = self._new_attributes()
        self._absent.st_ino = pyfuse3.InodeT(0)

    def init(self) -> None:
        """The kernel's first message. Our answer, which follows at once, takes the mount's read-ahead back to
        what it was: who wants more of it sets it after that.
        """
        asyncio.get_running_loop().call_soon(self.on_greeted)

    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        self.counters.lookups += 1
        if name in {b".", b".."}:
            return self._attributes(self._node(parent_inode))
        node = self._table.look_up(parent_inode, name)
        return self._absent if node is None else self._attributes(node)

    async def forget(self, inode_list: object) -> None:
        for number, times in inode_list:  # type: ignore[attr-defined]
            self._table.untold(number, times)

    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        self.counters.attributes += 1
        return self._attributes(self._node(inode))

    async def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        return self._node(inode).entry.target

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        node = self._node(inode)
        if node.is_gone:
            raise pyfuse3.FUSEError(errno.ESTALE)
        handle = next(self._handles)
        self._listings[handle] = _Listing(node, [])
        return handle

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        directory, table = listing.node, self._table
        if directory.is_gone:
            return
        if not start_id:  # for the first time, or once more
            listing.names = self._overlay.names(directory.path)
        at = self._overlay.at
        attributes, reply = self._attributes, pyfuse3.readdir_reply
        for number, name in enumerate(itertools.islice(listing.names, start_id, None), start_id + 1):
            entry = at(directory.path, name)
            if entry is None:
                continue
            node = table.told(directory, name, entry)
            if not reply(token, name, attributes(node), number):
                table.untold(node.number)
                return

    async def releasedir(self, fh: int) -> None:
        self._listings.pop(fh, None)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        self.counters.opens += 1
        node = self._node(inode)
        file = node.file
        if file.size and file.size <= WHOLE:
            if not self._cache.has(file):
                directory, name = split(file.path)
                content = self._overlay.manifest.directories.get(directory, {})
                self._cache.fetch_ahead(self._neighbours.after(directory, name, content))
            await self._read_whole(node, file)
        self._cache.opened(file)
        return self._handle(node, file)

    async def _read_whole(self, node: Node, file: FileRef) -> None:
        """It counts as open meanwhile: its name may go, and its bytes must not."""
        node.opens += 1
        try:
            await self._read(file, 0, file.size, node)
        except BaseException:
            node.opens -= 1
            if not node.opens:
                self._closed(node)
            raise
        node.opens -= 1

    async def read(self, fh: int, off: int, size: int) -> Bytes:  # type: ignore[override]
        self.counters.reads += 1
        opened = self._opened[fh]
        if opened.file is None or opened.node.entry.version == WRITTEN:
            return await self._read_own(opened.node, off, size)
        return await self._read(opened.file, off, size)

    async def release(self, fh: int) -> None:
        opened = self._opened.pop(fh, None)
        if opened is None:
            return
        if opened.file is not None:
            self._cache.closed(opened.file)
        opened.node.opens -= 1
        if not opened.node.opens:
            self._closed(opened.node)

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = 4096
        data.f_files = len(self._overlay.manifest)
        data.f_namemax = 255
        return data

    async def access(self, inode: int, mode: int, ctx: pyfuse3.RequestContext) -> bool:
        return True

    async def _read(self, file: FileRef, offset: int, size: int, opening: Node | None = None) -> Bytes:
        try:
            return await self._cache.read(file, offset, size)
        except Gone:
            self.counters.stale += 1
            if opening is not None:
                await self._replaced(opening)
            raise pyfuse3.FUSEError(errno.ESTALE) from None
        except Unreadable as error:
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from None
        except Unavailable as error:
            self.counters.failed += 1
            self._on_failure(f"{os.fsdecode(file.path)} could not be read (EIO): {error.cause}")
            raise pyfuse3.FUSEError(errno.EIO) from None

    async def _replaced(self, node: Node) -> None:
        """Waits until another version stands under the name: the kernel looks it up again."""
        with anyio.move_on_after(_NEXT_VERSION_S):
            while not node.is_gone:
                await self._next_change()

    def _node(self, number: int) -> Node:
        node = self._table.node(number)
        if node is None:
            raise pyfuse3.FUSEError(errno.ESTALE)
        return node

    def _handle(self, node: Node, file: FileRef | None) -> pyfuse3.FileInfo:
        handle = next(self._handles)
        self._opened[handle] = Opened(node, file)
        node.opens += 1
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(handle), keep_cache=True)

    async def _read_own(self, node: Node, offset: int, size: int) -> Bytes:
        """Of what the host wrote."""
        raise pyfuse3.FUSEError(errno.EIO)

    def _closed(self, node: Node) -> None:
        """No program has it open any more."""

    def _attributes(self, node: Node) -> pyfuse3.EntryAttributes:
        scratch = self._scratch
        entry: Entry = node.entry
        scratch.st_ino = node.number
        scratch.st_mode = _TYPES[entry.kind] | entry.mode
        scratch.st_size = entry.size
        scratch.st_blocks = (entry.size + 511) // 512
        scratch.st_mtime_ns = scratch.st_ctime_ns = scratch.st_atime_ns = entry.mtime_ns
        return scratch

    def _new_attributes(self) -> pyfuse3.EntryAttributes:
        made = pyfuse3.EntryAttributes()
        made.entry_timeout = made.attr_timeout = _FOR_EVER_S
        made.st_uid, made.st_gid = self._uid, self._gid
        made.st_nlink = 1
        made.st_blksize = _BLOCK
        return made
