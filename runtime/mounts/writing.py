"""What the kernel is answered when a program writes: the host's own files, over the client's.

Imported in the mount process alone: it needs pyfuse3. Names that the host has not touched are answered as in
`filesystem`. What is answered at once is done at once: between two awaits nothing else happens.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio.to_thread
import pyfuse3

from ..errors import Unavailable
from .cache import ByteCache
from .filesystem import FileSystem
from .host_changes import HostChanges
from .manifest import DIRECTORY, Entry, join, split
from .nodes import NOT_OPEN, ROOT, Node, NodeTable
from .open_files import OpenFiles
from .overlay import WRITTEN
from .source import Bytes, Gone, Unreadable

__all__ = ["WritableFileSystem"]

logger = logging.getLogger(__name__)

_SLOW_S = 0.02
_LONG_S = 1.0

T = TypeVar("T")


class _Answers:
    """Turns what went wrong in a block into what the kernel is told."""

    def __init__(self, on_failure: Callable[[str], object]) -> None:
        self._on_failure = on_failure

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, pyfuse3.FUSEError) or not isinstance(error, Exception):
            return
        if isinstance(error, BaseExceptionGroup):
            self.__exit__(None, error.exceptions[0], None)
        raise pyfuse3.FUSEError(self._errno(error)) from None

    def _errno(self, error: BaseException) -> int:
        if isinstance(error, Gone):
            return errno.ESTALE
        if isinstance(error, Unreadable | OSError):
            return error.errno or errno.EIO
        if isinstance(error, Unavailable):
            self._on_failure(f"a file could not be read to be changed (EIO): {error.cause}")
        else:
            logger.error("a change failed", exc_info=error)
        return errno.EIO


class WritableFileSystem(FileSystem):
    def __init__(
        self,
        table: NodeTable,
        changes: HostChanges,
        cache: ByteCache,
        next_change: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], object],
    ) -> None:
        super().__init__(table, changes.overlay, cache, next_change, on_failure)
        self._changes = changes
        self._upper = changes.upper
        self._files = OpenFiles(table, changes.upper)
        changes.on_copied = table.copied
        changes.on_going = self._files.keep
        self._answers = _Answers(on_failure)
        self._own = self._new_attributes()
        self._slow_until = 0.0

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        directory = self._directory(parent_inode)
        entry = self._overlay.at(directory.path, name)
        if entry is not None:
            if flags & os.O_EXCL:
                raise pyfuse3.FUSEError(errno.EEXIST)
            node = self._table.told(directory, name, entry)
            try:
                return await self.open(node.number, flags, ctx), self._attributes(node)
            except BaseException:
                self._table.untold(node.number)
                raise
        with self._answers:
            fd = self._changes.create(join(directory.path, name), stat.S_IMODE(mode))
            node = self._told(directory, name, ctx)
            node.fd = fd
            return self._handle(node, None), self._attributes(node)

    async def mknod(
        self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        directory, path = self._free(parent_inode, name)
        with self._answers:
            if stat.S_ISREG(mode):
                os.close(self._changes.create(path, stat.S_IMODE(mode)))
            else:
                self._changes.make_node(path, mode)
            return self._attributes(self._told(directory, name, ctx))

    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        directory, path = self._free(parent_inode, name)
        with self._answers:
            self._changes.make_directory(path, stat.S_IMODE(mode))
            return self._attributes(self._told(directory, name, ctx))

    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        directory, path = self._free(parent_inode, name)
        with self._answers:
            self._changes.make_link(path, target)
            return self._attributes(self._told(directory, name, ctx))

    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        raise pyfuse3.FUSEError(errno.EPERM)

    async def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        node = self._node(inode)
        if node.entry.version != WRITTEN:
            return await super().readlink(inode, ctx)
        with self._answers:
            return os.readlink(self._upper.path(node.path))
        raise AssertionError  # pragma: no cover - the block above answers or raises

    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        path, entry = self._there(parent_inode, name)
        if entry.kind == DIRECTORY:
            raise pyfuse3.FUSEError(errno.EISDIR)
        with self._answers:
            self._remember(path)
            self._changes.remove(path)
        self._table.gone(path)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        path, entry = self._there(parent_inode, name)
        if entry.kind != DIRECTORY:
            raise pyfuse3.FUSEError(errno.ENOTDIR)
        if self._overlay.names(path):
            raise pyfuse3.FUSEError(errno.ENOTEMPTY)
        with self._answers:
            self._remember(path)
            self._changes.remove(path)
        self._table.gone(path)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        if flags & ~pyfuse3.RENAME_NOREPLACE:
            raise pyfuse3.FUSEError(errno.EINVAL)
        old, entry = self._there(parent_inode_old, name_old)
        self._check_replaced(join(self._directory(parent_inode_new).path, name_new), entry, flags)
        with self._answers:
            if entry.kind == DIRECTORY:
                await self._changes.copy_up_all(old)
            else:
                await self._changes.copy_up(old)
        old, entry = self._there(parent_inode_old, name_old)
        if entry.version != WRITTEN:
            raise pyfuse3.FUSEError(errno.ESTALE)
        new = join(self._directory(parent_inode_new).path, name_new)
        if new == old:
            return
        self._check_replaced(new, entry, flags)
        with self._answers:
            self._remember(new)
            self._changes.rename(old, new)
        self._table.moved(old, new, entry.kind)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        node = self._node(inode)
        is_to_write = flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & os.O_TRUNC)
        if node.entry.version != WRITTEN and not is_to_write:
            return await super().open(inode, flags, ctx)
        self.counters.opens += 1
        with self._answers:
            if node.entry.version != WRITTEN:
                await self._copied(node, 0 if flags & os.O_TRUNC else None)
            fd = self._files.descriptor(node, is_to_write)
            if flags & os.O_TRUNC:
                os.ftruncate(fd, 0)
        return self._handle(node, None)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        node = self._opened[fh].node
        with self._answers:
            fd = node.fd if node.fd != NOT_OPEN else self._files.descriptor(node, True)
            try:
                return await self._on_disk(os.pwrite, fd, buf, off)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
            return self._changes.with_room(lambda: os.pwrite(fd, buf, off))
        raise AssertionError  # pragma: no cover - the block above answers or raises

    async def fsync(self, fh: int, datasync: bool) -> None:
        node = self._opened[fh].node
        if node.fd != NOT_OPEN:
            with self._answers:
                await anyio.to_thread.run_sync(os.fdatasync if datasync else os.fsync, node.fd)

    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        node = self._node(inode)
        with self._answers:
            if node.entry.version != WRITTEN and node.number != ROOT:
                await self._copied(node, attr.st_size if fields.update_size else None)
            target = node.fd if node.fd != NOT_OPEN else self._upper.path(node.path)
            if target is not node.fd and node.is_gone:
                raise Gone
            self._set(target, attr, fields)
        return self._attributes(node)

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        with self._answers:
            disk = os.statvfs(self._upper.root)
        data = await super().statfs(ctx)
        data.f_bsize, data.f_frsize = disk.f_bsize, disk.f_frsize
        data.f_blocks, data.f_bfree, data.f_bavail = disk.f_blocks, disk.f_bfree, disk.f_bavail
        data.f_files, data.f_ffree, data.f_favail = disk.f_files, disk.f_ffree, disk.f_favail
        return data

    async def _read_own(self, node: Node, offset: int, size: int) -> Bytes:
        with self._answers:
            fd = node.fd if node.fd != NOT_OPEN else self._files.descriptor(node)
            return await self._on_disk(os.pread, fd, size, offset)
        raise AssertionError  # pragma: no cover - the block above answers or raises

    def _closed(self, node: Node) -> None:
        self._files.closed(node)

    async def _copied(self, node: Node, length: int | None) -> None:
        """Has what stands behind a number among the host's own.

        Raises:
            Gone: another version stands there: the kernel is to look the name up again.
        """
        if not node.is_gone:
            await self._changes.copy_up(node.path, length)
        if node.entry.version != WRITTEN:
            await self._replaced(node)
            raise Gone

    async def _on_disk(self, do: Callable[..., T], *arguments: Any) -> T:
        """At once while the disk is fast, which a thread is not; in threads for a while after it was slow."""
        began = time.monotonic()
        if began < self._slow_until:
            done = await anyio.to_thread.run_sync(do, *arguments)
        else:
            done = do(*arguments)
        ended = time.monotonic()
        if ended - began > _SLOW_S:
            self._slow_until = ended + _LONG_S
        return done

    def _set(self, target: int | bytes, attr: pyfuse3.EntryAttributes, fields: pyfuse3.SetattrFields) -> None:
        if fields.update_size:
            self._changes.with_room(lambda: os.truncate(target, attr.st_size))
        if fields.update_uid or fields.update_gid:
            uid, gid = attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1
            os.chown(target, uid, gid, **_not_followed(target))
        if fields.update_mode:
            os.chmod(target, stat.S_IMODE(attr.st_mode))
        if fields.update_atime or fields.update_mtime:
            found = os.stat(target, **_not_followed(target))
            times = (
                attr.st_atime_ns if fields.update_atime else found.st_atime_ns,
                attr.st_mtime_ns if fields.update_mtime else found.st_mtime_ns,
            )
            os.utime(target, None, ns=times, **_not_followed(target))

    def _attributes(self, node: Node) -> pyfuse3.EntryAttributes:
        if node.is_gone and node.fd == NOT_OPEN:
            return self._last_attributes(node)
        if node.entry.version != WRITTEN and node.number != ROOT:
            return super()._attributes(node)
        with self._answers:
            is_open = node.fd != NOT_OPEN
            found = os.fstat(node.fd) if is_open else os.lstat(self._upper.path(node.path))
        own = self._own
        own.st_ino = pyfuse3.InodeT(node.number)
        own.st_mode, own.st_size, own.st_blocks = found.st_mode, found.st_size, found.st_blocks
        own.st_uid, own.st_gid = found.st_uid, found.st_gid
        own.st_atime_ns, own.st_mtime_ns, own.st_ctime_ns = (
            found.st_atime_ns,
            found.st_mtime_ns,
            found.st_ctime_ns,
        )
        own.st_nlink = found.st_nlink
        if stat.S_ISDIR(found.st_mode):
            own.st_nlink = 1  # what is below it in the client's tree is not counted
            own.st_size = 0
            if (lower := self._overlay.manifest.entry(node.path)) is not None and lower.kind == DIRECTORY:
                own.st_mtime_ns = max(found.st_mtime_ns, lower.mtime_ns)
        return own

    def _told(self, directory: Node, name: bytes, ctx: pyfuse3.RequestContext) -> Node:
        """The node of what was just made."""
        if self._uid == 0 and (ctx.uid, ctx.gid) != (0, self._gid):  # others cannot give it away
            os.chown(self._upper.path(join(directory.path, name)), ctx.uid, ctx.gid, follow_symlinks=False)
        entry = self._overlay.at(directory.path, name)
        assert entry is not None
        return self._table.told(directory, name, entry)

    def _last_attributes(self, node: Node) -> pyfuse3.EntryAttributes:
        """Of what has no name any more, and is not open."""
        last = super()._attributes(node)
        own = self._own
        own.st_ino, own.st_nlink = last.st_ino, 0
        own.st_mode, own.st_size, own.st_blocks = last.st_mode, last.st_size, last.st_blocks
        own.st_mtime_ns = own.st_ctime_ns = own.st_atime_ns = last.st_mtime_ns
        return own

    def _remember(self, path: bytes) -> None:
        """What is about to lose its name may be asked about yet."""
        node = self._table.current(path)
        if node is not None and node.entry.version == WRITTEN and node.fd == NOT_OPEN:
            found = os.lstat(self._upper.path(path))
            mode = stat.S_IMODE(found.st_mode)
            node.entry = node.entry._replace(mode=mode, size=found.st_size, mtime_ns=found.st_mtime_ns)

    def _directory(self, number: int) -> Node:
        node = self._node(number)
        if node.is_gone:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return node

    def _free(self, parent: int, name: bytes) -> tuple[Node, bytes]:
        directory = self._directory(parent)
        if self._overlay.at(directory.path, name) is not None:
            raise pyfuse3.FUSEError(errno.EEXIST)
        return directory, join(directory.path, name)

    def _there(self, parent: int, name: bytes) -> tuple[bytes, Entry]:
        directory = self._directory(parent)
        entry = self._overlay.at(directory.path, name)
        if entry is None:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return join(directory.path, name), entry

    def _check_replaced(self, path: bytes, by: Entry, flags: int) -> None:
        found = self._overlay.at(*split(path))
        if found is None:
            return
        if flags & pyfuse3.RENAME_NOREPLACE:
            raise pyfuse3.FUSEError(errno.EEXIST)
        if found.kind == DIRECTORY != by.kind:
            raise pyfuse3.FUSEError(errno.EISDIR)
        if by.kind == DIRECTORY != found.kind:
            raise pyfuse3.FUSEError(errno.ENOTDIR)
        if found.kind == DIRECTORY and self._overlay.names(path):
            raise pyfuse3.FUSEError(errno.ENOTEMPTY)


def _not_followed(target: int | bytes) -> dict[str, bool]:
    """Of a path a link is meant, and not what it leads to."""
    return {} if isinstance(target, int) else {"follow_symlinks": False}
