"""What the kernel is answered of a gather mount. Imported in its process alone: it needs pyfuse3."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import pyfuse3

from .ahead import Ahead
from .attributes import Attributes, Page
from .lives import Lives
from .nodes import ROOT, Node, Nodes
from .remote_host import Bytes, RemoteHost, Unanswered
from .small_files import SmallFiles

__all__ = ["Counters", "GatherFileSystem"]

_BLOCK = 128 * 1024
_LIVE_S = 30.0
_LIVE_BYTES = 4 * 1024 * 1024
_SHOWN_AS_SOCKETS = (stat.S_IFIFO, stat.S_IFSOCK)

T = TypeVar("T")


@dataclass(slots=True)
class Counters:
    lookups: int = 0
    attributes: int = 0
    listings: int = 0
    opens: int = 0
    reads: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Open:
    """`data` is the whole of the file as it was when `attributes` were told."""

    node: Node
    attributes: Attributes
    data: Bytes | None
    ahead: Ahead


@dataclass(slots=True)
class _Listing:
    node: Node | None
    entries: list[tuple[bytes, Attributes]] = field(default_factory=list)
    more: bool = False
    listed_at: float = 0.0


class GatherFileSystem(pyfuse3.Operations):
    """Each directory of the mount is a host's. `on_greeted` is called when the kernel has said hello."""

    def __init__(self, hosts: Mapping[int, RemoteHost], life_s: float) -> None:
        super().__init__()
        self.counters = Counters()
        self.on_greeted: Callable[[], object] = lambda: None
        self._hosts = hosts
        self._nodes = Nodes(tuple(hosts))
        self._lives = Lives(life_s)
        self._small = SmallFiles(self._lives)
        self._life_s = life_s
        self._made_at = time.time_ns()
        self._files: dict[int, _Open] = {}
        self._listings: dict[int, _Listing] = {}
        self._handles = itertools.count(1)

    def init(self) -> None:
        """The kernel's first message: with the answer to it the kernel sets its read-ahead back."""
        asyncio.get_running_loop().call_soon(self.on_greeted)

    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        self.counters.lookups += 1
        if parent_inode == ROOT:
            if (host := self._nodes.hosts.get(name)) is None:
                raise pyfuse3.FUSEError(errno.ENOENT)
            return await self._shown(host)
        parent = self._node(parent_inode)
        attributes, left = await self._entry((parent.host, parent.path), name)
        return self._entry_of(self._told(parent, name, attributes, left), left)

    async def forget(self, inode_list: object) -> None:
        for number, times in inode_list:  # type: ignore[attr-defined]
            self._nodes.untold(number, times)

    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        self.counters.attributes += 1
        return self._root() if inode == ROOT else await self._shown(self._node(inode))

    async def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        node = self._node(inode)
        return (await self._fresh(node)).target

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        handle = next(self._handles)
        self._listings[handle] = _Listing(None if inode == ROOT else self._node(inode))
        return handle

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        node = listing.node
        if node is None:
            await self._list_hosts(start_id, token)
            return
        if not start_id:
            listing.entries, listing.more = [], True
        while listing.more and start_id >= len(listing.entries):
            await self._list_on(node, listing)
        now = time.monotonic()
        left = max(0.0, listing.listed_at + self._life_s - now)
        for at, (name, attributes) in enumerate(
            itertools.islice(listing.entries, start_id, None), start_id + 1
        ):
            child = self._told(node, name, attributes, left)
            if not pyfuse3.readdir_reply(token, name, self._entry_of(child, left), at):
                self._nodes.untold(child.number, 1)
                return

    async def _list_on(self, node: Node, listing: _Listing) -> None:
        after = listing.entries[-1][0] if listing.entries else b""
        page = await self._answered(self._page(node, after))
        listing.listed_at = time.monotonic()
        listing.entries += page.entries
        # What was the last of the page may have gone: without entries there is nothing to go on from.
        listing.more = page.more and bool(page.entries)

    async def _list_hosts(self, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        """Hosts that are gone are listed too, which asks none of them."""
        for at, (name, node) in enumerate(
            itertools.islice(self._nodes.hosts.items(), start_id, None), start_id + 1
        ):
            entry = self._entry_of(node, 0.0)
            if not pyfuse3.readdir_reply(token, name, entry, at):
                return

    async def releasedir(self, fh: int) -> None:
        self._listings.pop(fh, None)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        self.counters.opens += 1
        node = self._node(inode)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise pyfuse3.FUSEError(errno.EROFS)
        host = self._hosts[node.host]
        attributes, data = await self._answered(self._small.opened(host, node))
        attributes = self._know(node, attributes)

        async def fetch(offset: int, length: int) -> Bytes:
            version = (node.attributes or attributes).version
            return await host.read(node.path, version, offset, length)

        handle = next(self._handles)
        self._files[handle] = _Open(node, attributes, data, Ahead(fetch, self._life_s))
        is_direct = _is_read_directly(attributes, time.time())
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(handle), keep_cache=False, direct_io=is_direct)

    async def read(self, fh: int, off: int, size: int) -> Bytes:  # type: ignore[override]
        self.counters.reads += 1
        file = self._files[fh]
        if file.data is not None:
            if (
                file.node.attributes is file.attributes
                and file.node.known_at > time.monotonic() - self._life_s
            ):
                return file.data[off : off + size]
            file.data = None
        known = file.node.attributes or file.attributes
        return await self._answered(file.ahead.read(off, size, known.size))

    async def release(self, fh: int) -> None:
        file = self._files.pop(fh, None)
        if file is not None:
            await file.ahead.close()

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = 4096
        data.f_namemax = 255
        return data

    async def access(self, inode: int, mode: int, ctx: pyfuse3.RequestContext) -> bool:
        return True

    async def _entry(self, directory: tuple[int, bytes], name: bytes) -> tuple[Attributes, float]:
        """What an entry is, and for how long that is believed."""
        now = time.monotonic()
        if (found := self._lives.find(directory, name, now)) is not None:
            return found
        host, path = directory
        if self._lives.is_worth_listing(directory, now):
            page = await self._answered(self._hosts[host].page(path))
            self._lives.listed(directory, page, time.monotonic())
            if (found := self._lives.find(directory, name, time.monotonic())) is not None:
                return found
        below = path + b"/" + name if path else name
        return await self._answered(self._hosts[host].attributes(below)), self._life_s

    async def _page(self, node: Node, after: bytes) -> Page:
        self.counters.listings += 1
        page = await self._hosts[node.host].page(node.path, after)
        if not after:
            self._lives.listed((node.host, node.path), page, time.monotonic())
        return page

    async def _shown(self, node: Node) -> pyfuse3.EntryAttributes:
        await self._fresh(node)
        return self._entry_of(node, max(0.0, node.known_at + self._life_s - time.monotonic()))

    async def _fresh(self, node: Node) -> Attributes:
        """What is known of it, not older than it may be.

        Raises:
            FUSEError: ESTALE, another file has its name by now.
        """
        if node.attributes is not None and node.known_at > time.monotonic() - self._life_s:
            return node.attributes
        if node.is_host:
            attributes, left = await self._answered(self._hosts[node.host].attributes(b"")), self._life_s
        else:
            attributes, left = await self._entry(node.directory, node.name)
        return self._know(node, attributes, left)

    def _know(self, node: Node, attributes: Attributes, left: float | None = None) -> Attributes:
        if not node.may_be(attributes):
            self._lives.forget(node.directory)
            raise pyfuse3.FUSEError(errno.ESTALE)
        node.known_at = time.monotonic() - (0.0 if left is None else self._life_s - left)
        if node.attributes is None or node.attributes != attributes:
            node.attributes = attributes
        return node.attributes

    def _told(self, parent: Node, name: bytes, attributes: Attributes, left: float) -> Node:
        known_at = time.monotonic() - (self._life_s - left)
        return self._nodes.told(parent, name, attributes, known_at)

    def _node(self, number: int) -> Node:
        node = self._nodes.get(number)
        if node is None:
            raise pyfuse3.FUSEError(errno.ESTALE)
        return node

    async def _answered(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except Unanswered as error:
            if error.errno == errno.EIO:
                self.counters.failed += 1
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from None

    def _root(self) -> pyfuse3.EntryAttributes:
        made = pyfuse3.EntryAttributes()
        made.st_ino = pyfuse3.InodeT(ROOT)
        made.st_mode = pyfuse3.ModeT(stat.S_IFDIR | 0o555)
        made.st_nlink = 2 + len(self._hosts)
        made.st_uid, made.st_gid = os.getuid(), os.getgid()
        made.st_mtime_ns = made.st_ctime_ns = made.st_atime_ns = self._made_at
        made.entry_timeout = made.attr_timeout = self._life_s
        return made

    def _entry_of(self, node: Node, left: float) -> pyfuse3.EntryAttributes:
        made = pyfuse3.EntryAttributes()
        made.st_ino = pyfuse3.InodeT(node.number)
        made.entry_timeout = made.attr_timeout = left
        made.st_blksize = _BLOCK
        one = node.attributes
        if one is None:  # a host that was not asked yet
            made.st_mode, made.st_nlink = pyfuse3.ModeT(stat.S_IFDIR | 0o555), 2
            made.st_mtime_ns = made.st_ctime_ns = made.st_atime_ns = self._made_at
            return made
        # A FIFO here would be one of the client's, which waits for a writer; to open a socket fails at once.
        kind = stat.S_IFSOCK if one.kind in _SHOWN_AS_SOCKETS else one.kind
        made.st_mode = pyfuse3.ModeT(kind | stat.S_IMODE(one.mode))
        made.st_nlink = one.links
        made.st_uid, made.st_gid = one.uid, one.gid
        made.st_size = len(one.target) if one.target else one.size
        made.st_blocks = one.blocks
        made.st_mtime_ns = made.st_atime_ns = one.mtime_ns
        made.st_ctime_ns = one.ctime_ns
        return made


def _is_read_directly(attributes: Attributes, now: float) -> bool:
    """Past the page cache: what has bytes but no size, as files of the kernel; and what is written to, which
    the kernel would fill up with zeros where it was cut since it was told the size. A large file is not: it
    could not be mapped by several then.
    """
    is_written_to = now - attributes.mtime_ns / 1e9 < _LIVE_S
    return not attributes.size or (is_written_to and attributes.size <= _LIVE_BYTES)
