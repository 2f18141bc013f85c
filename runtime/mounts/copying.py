"""Mode `copy`: a plain directory kept like a source, by the same manifest, deltas and acknowledgements.

A file is replaced in one step when all of its new version is here; what programs have open stays as it was.
What the directory holds besides stays untouched, but for names that the source uses.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

import anyio
import anyio.to_thread

from ..errors import ProtocolError
from .deltas import Delta, apply, difference
from .manifest import DIRECTORY, FILE, LINK, Entry, FileRef, Manifest, join
from .packing import pack_manifest, unpack_manifest
from .source import Gone, Source, Unreadable

__all__ = ["Copy"]

_PIECE = 4 * 1024 * 1024
_AT_ONCE = 8
_TEMPORARY = ".milkweed-new-"


class Copy:
    """`target` is the directory, `record` a file outside of it that says what was copied into it."""

    def __init__(self, source: Source, target: Path, record: Path) -> None:
        self.copied_files = 0
        self.copied_bytes = 0
        self.unreadable: list[bytes] = []
        self.manifest = Manifest(revision=-1)
        self._source = source
        self._root = os.fsencode(target)
        self._record = record

    async def begin(self) -> int:
        """Makes the directory as the source is; what an earlier life has copied is not copied again. The
        revision.

        Raises:
            OSError: the directory cannot be written to.
        """
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        await anyio.to_thread.run_sync(self._recall)
        await self._become(difference(self.manifest, await self._source.open()))
        return self.manifest.revision

    async def follow(self) -> None:
        """Keeps it up, until cancelled. To ask for what comes next says that all before is there."""
        while True:
            news = await self._source.since(self.manifest.epoch, self.manifest.revision)
            await self._become(news if isinstance(news, Delta) else difference(self.manifest, news))

    async def _become(self, delta: Delta) -> None:
        await anyio.to_thread.run_sync(self._remove_all, delta.removed)
        files = [(path, entry) for path, entry in delta.put if entry.kind == FILE]
        others = [(path, entry) for path, entry in delta.put if entry.kind != FILE]
        await anyio.to_thread.run_sync(self._make_all, others)
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for path, entry in files:
                await limiter.acquire_on_behalf_of(path)
                tasks.start_soon(self._fetch, path, entry, limiter)
        await anyio.to_thread.run_sync(self._date_directories, others)
        apply(self.manifest, delta)
        self.manifest.epoch = delta.epoch
        await anyio.to_thread.run_sync(self._write_record)

    async def _fetch(self, path: bytes, entry: Entry, limiter: anyio.CapacityLimiter) -> None:
        try:
            before = self.manifest.entry(path)
            if before is not None and before.kind == FILE and before.version == entry.version:
                with suppress(OSError):
                    os.chmod(join(self._root, path), entry.mode)
                return
            await self._replace(path, entry)
        except Gone:  # a later delta has what came in its place
            pass
        except Unreadable:
            self.unreadable.append(path)
        finally:
            limiter.release_on_behalf_of(path)

    async def _replace(self, path: bytes, entry: Entry) -> None:
        file = FileRef(path, entry.version, entry.size)
        absolute = join(self._root, path)
        fd, name = mkstemp(prefix=os.fsencode(_TEMPORARY), dir=os.path.dirname(absolute))
        try:
            for offset in range(0, entry.size, _PIECE):
                data = await self._source.read(file, offset, min(_PIECE, entry.size - offset))
                await anyio.to_thread.run_sync(_write, fd, offset, data)
                self.copied_bytes += len(data)
            os.fchmod(fd, entry.mode)
            os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
            os.rename(name, absolute)
        except BaseException:
            os.unlink(name)
            raise
        finally:
            os.close(fd)
        self.copied_files += 1

    def _remove_all(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            _remove(join(self._root, path))

    def _make_all(self, entries: Iterable[tuple[bytes, Entry]]) -> None:
        for path, entry in entries:
            absolute = join(self._root, path) if path else self._root
            if entry.kind == DIRECTORY:
                if not _is_directory(absolute):
                    _remove(absolute)
                    os.mkdir(absolute)
                os.chmod(absolute, entry.mode | stat.S_IRWXU)
            elif entry.kind == LINK:
                fresh = join(os.path.dirname(absolute), os.fsencode(f"{_TEMPORARY}{os.getpid()}"))
                with suppress(FileNotFoundError):
                    os.unlink(fresh)
                os.symlink(entry.target, fresh)
                if _is_directory(absolute):
                    _remove(absolute)
                os.rename(fresh, absolute)

    def _date_directories(self, entries: Iterable[tuple[bytes, Entry]]) -> None:
        for path, entry in entries:
            if entry.kind == DIRECTORY:
                with suppress(OSError):
                    absolute = join(self._root, path) if path else self._root
                    os.utime(absolute, ns=(entry.mtime_ns, entry.mtime_ns))

    def _recall(self) -> None:
        """What was copied before, as far as it is still so."""
        with suppress(OSError, ProtocolError):
            self.manifest = unpack_manifest(self._record.read_bytes())
        for path, entry in list(self.manifest.walk()):
            try:
                found = os.lstat(join(self._root, path))
            except OSError:
                self.manifest.remove(path)
                continue
            same = entry.kind != FILE or (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns)
            if not same:
                self.manifest.remove(path)

    def _write_record(self) -> None:
        fresh = self._record.with_name(f".{self._record.name}")
        with suppress(OSError):  # the next life copies more than it must
            fresh.write_bytes(pack_manifest(self.manifest))
            fresh.rename(self._record)


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _remove(path: bytes) -> None:
    if _is_directory(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(path)


def _write(fd: int, offset: int, data: bytes | memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], offset + done)
