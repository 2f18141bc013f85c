"""Mode `copy`: a plain directory kept like a source, by the same manifest, deltas and acknowledgements.

A file is replaced in one step when all of its new version is here; what programs have open stays as it was.
What the host writes there stays, until the source changes the same name: then that is shown, and the host's
is kept beside it, as in a mount (`conflicts`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkstemp

import anyio
import anyio.to_thread

from ..errors import ProtocolError
from .copy_changes import TEMPORARY, changed, is_as_copied, is_same_content, move_aside, sizes
from .deltas import Delta, apply, difference
from .manifest import DIRECTORY, FILE, LINK, Entry, FileRef, Manifest, join, split
from .overlay import HostCopy, is_within
from .packing import pack_manifest, unpack_manifest
from .source import Gone, Source, Unreadable
from .upper import Usage

__all__ = ["Copy"]

_PIECE = 4 * 1024 * 1024
_AT_ONCE = 8


async def _nobody(_: Sequence[HostCopy]) -> None:
    """Is told."""


class Copy:
    """`target` is the directory, `record` a file outside of it that says what was copied into it. `on_kept`
    is told of conflicts, before what they are with is acknowledged.
    """

    def __init__(
        self,
        source: Source,
        target: Path,
        record: Path,
        on_kept: Callable[[Sequence[HostCopy]], Awaitable[None]] = _nobody,
    ) -> None:
        self.copied_files = 0
        self.copied_bytes = 0
        self.unreadable: list[bytes] = []
        self.manifest = Manifest(revision=-1)
        self._source = source
        self._on_kept = on_kept
        self._copies: list[HostCopy] = []
        self._behind: dict[bytes, Entry | None] = {}
        """Of what the manifest has, but could not be had yet: what is there instead, None for nothing."""
        self._becoming = anyio.Lock()
        self._root = os.fsencode(target)
        self._record = record

    async def begin(self) -> int:
        """Makes the directory as the source is; what an earlier life has copied is not copied again, nor what
        the host has changed since. The revision.

        Raises:
            OSError: the directory cannot be written to.
        """
        await anyio.to_thread.run_sync(self._recall)
        await self._become(difference(self.manifest, await self._source.open()))
        return self.manifest.revision

    async def follow(self) -> None:
        """Keeps it up, until cancelled. To ask for what comes next says that all before is there."""
        while True:
            news = await self._source.since(self.manifest.epoch, self.manifest.revision)
            await self._become(news if isinstance(news, Delta) else difference(self.manifest, news))

    async def usage(self) -> Usage:
        """Of what the host wrote."""
        return await anyio.to_thread.run_sync(
            lambda: sizes(self._root, changed(self._root, self._record_of(self.manifest)))
        )

    async def discard(self, keep: Sequence[bytes]) -> Usage:
        """All that the host did is undone, but what is at or below these paths: how much that was.

        Raises:
            OSError: the directory cannot be written to.
        """

        def remove() -> tuple[Usage, list[tuple[bytes, Entry]]]:
            found = [
                one
                for one in changed(self._root, self._record_of(self.manifest))
                if not is_within(one[0], keep)
            ]
            counted = sizes(self._root, found)
            for path, _ in reversed(found):
                absolute = join(self._root, path)
                if not _is_directory(absolute):
                    with suppress(FileNotFoundError):
                        os.unlink(absolute)
                elif not any(one.startswith(path + b"/") for one in keep):
                    os.rmdir(absolute)
            return counted, [(path, entry) for path, entry in found if entry is not None]

        async with self._becoming:
            counted, lacking = await anyio.to_thread.run_sync(remove)
            put = dict(lacking)
            for path, entry in lacking:
                if entry.kind == DIRECTORY:
                    put |= _below(self.manifest, path)
            self._behind |= dict.fromkeys(path for path, entry in put.items() if entry.kind == FILE)
            await self._put(tuple(sorted(put.items())))
        return counted

    async def _become(self, delta: Delta) -> None:
        async with self._becoming:
            await self._change(delta)

    async def _change(self, delta: Delta) -> None:
        await anyio.to_thread.run_sync(self._remove_all, delta.removed)
        await self._put(delta.put)
        apply(self.manifest, delta)
        self.manifest.epoch = delta.epoch
        await anyio.to_thread.run_sync(self._write_record)
        if self._copies:
            await self._on_kept(tuple(self._copies))
            self._copies.clear()

    async def _put(self, entries: Sequence[tuple[bytes, Entry]]) -> None:
        files = [(path, entry) for path, entry in entries if entry.kind == FILE]
        others = [(path, entry) for path, entry in entries if entry.kind != FILE]
        await anyio.to_thread.run_sync(self._make_all, others)
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for path, entry in files:
                await limiter.acquire_on_behalf_of(path)
                tasks.start_soon(self._fetch, path, entry, limiter)
        await anyio.to_thread.run_sync(self._date_directories, others)

    async def _fetch(self, path: bytes, entry: Entry, limiter: anyio.CapacityLimiter) -> None:
        before = self.manifest.entry(path)
        try:
            if before is not None and before.kind == FILE and before.version == entry.version:
                with suppress(OSError):  # removed in the same delta: its directory went, and came back
                    os.chmod(join(self._root, path), entry.mode)
                    return
            await self._replace(path, entry)
            self._behind.pop(path, None)
        except Gone:  # a later delta has what came in its place
            self._behind.setdefault(path, before)
        except Unreadable:
            self._behind.setdefault(path, before)
            self.unreadable.append(path)
        finally:
            limiter.release_on_behalf_of(path)

    async def _replace(self, path: bytes, entry: Entry) -> None:
        file = FileRef(path, entry.version, entry.size)
        absolute = join(self._root, path)
        self._make_way(path)
        fd, name = mkstemp(prefix=TEMPORARY, dir=os.path.dirname(absolute))
        try:
            for offset in range(0, entry.size, _PIECE):
                data = await self._source.read(file, offset, min(_PIECE, entry.size - offset))
                await anyio.to_thread.run_sync(_write, fd, offset, data)
                self.copied_bytes += len(data)
            os.fchmod(fd, entry.mode)
            os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
            self._clear(path, name, entry)
            os.rename(name, absolute)
        except BaseException:
            os.unlink(name)
            raise
        finally:
            os.close(fd)
        self.copied_files += 1

    def _make_way(self, path: bytes) -> None:
        """The directories that it is in are there, whatever the host made of them."""
        directory = split(path)[0]
        if not directory or _is_directory(join(self._root, directory)):
            return
        self._make_way(directory)
        if os.path.lexists(join(self._root, directory)):
            self._copies.append(HostCopy(directory, move_aside(self._root, directory)))
        os.mkdir(join(self._root, directory))

    def _copied(self, path: bytes) -> Entry | None:
        """What was copied there last."""
        return self._behind[path] if path in self._behind else self.manifest.entry(path)

    def _clear(self, path: bytes, name: bytes, entry: Entry) -> None:
        """The place where something new is about to be, which lies at `name`: what the host has is kept."""
        absolute, before = join(self._root, path), self._copied(path)
        if not os.path.lexists(absolute):
            if before is not None and before.version != entry.version:
                self._copies.append(HostCopy(path, b""))
        elif _is_directory(absolute) or not (
            is_as_copied(absolute, before) or is_as_copied(absolute, entry) or is_same_content(name, absolute)
        ):
            self._copies.append(HostCopy(path, move_aside(self._root, path)))

    def _remove_all(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            self._remove(path, self._copied(path))

    def _remove(self, path: bytes, entry: Entry | None) -> None:
        """What was copied there; what the host did is kept."""
        self._behind.pop(path, None)
        absolute = join(self._root, path)
        if entry is not None and entry.kind == DIRECTORY and _is_directory(absolute):
            for name in self.manifest.directories.get(path, {}):
                self._remove(join(path, name), self._copied(join(path, name)))
            with suppress(OSError):  # the host has something in it
                os.rmdir(absolute)
        elif not is_as_copied(absolute, entry):
            with suppress(OSError):
                self._copies.append(HostCopy(path, move_aside(self._root, path)))
        else:
            with suppress(OSError):
                os.unlink(absolute)

    def _make_all(self, entries: Iterable[tuple[bytes, Entry]]) -> None:
        for path, entry in entries:
            absolute = join(self._root, path) if path else self._root
            if entry.kind == DIRECTORY:
                self._make_way(path)
                if not _is_directory(absolute):
                    if os.path.lexists(absolute):
                        self._remove(path, self.manifest.entry(path))
                    os.mkdir(absolute)
                os.chmod(absolute, entry.mode | stat.S_IRWXU)
            elif entry.kind == LINK:
                self._make_way(path)
                fresh = join(os.path.dirname(absolute), TEMPORARY + b"%d" % os.getpid())
                with suppress(FileNotFoundError):
                    os.unlink(fresh)
                os.symlink(entry.target, fresh)
                self._clear(path, fresh, entry)
                os.rename(fresh, absolute)

    def _date_directories(self, entries: Iterable[tuple[bytes, Entry]]) -> None:
        for path, entry in entries:
            if entry.kind == DIRECTORY:
                with suppress(OSError):
                    absolute = join(self._root, path) if path else self._root
                    os.utime(absolute, ns=(entry.mtime_ns, entry.mtime_ns))

    def _recall(self) -> None:
        """What was copied before."""
        if os.path.isdir(self._root):
            with suppress(OSError, ProtocolError):
                self.manifest = unpack_manifest(self._record.read_bytes())
        else:
            os.makedirs(self._root, mode=0o700)

    def _record_of(self, manifest: Manifest) -> Manifest:
        """As it is on disk."""
        if not self._behind:
            return manifest
        directories = {path: dict(content) for path, content in manifest.directories.items()}
        actual = replace(manifest, directories=directories)
        for path, entry in self._behind.items():
            if entry is None:
                actual.remove(path)
            else:
                actual.put(path, entry)
        return actual

    def _write_record(self) -> None:
        fresh = self._record.with_name(f".{self._record.name}")
        with suppress(OSError):  # the next life copies more than it must
            fresh.write_bytes(pack_manifest(self._record_of(self.manifest)))
            fresh.rename(self._record)


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _below(manifest: Manifest, path: bytes) -> dict[bytes, Entry]:
    found: dict[bytes, Entry] = {}
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        for name, entry in manifest.directories.get(directory, {}).items():
            inside = join(directory, name)
            found[inside] = entry
            if entry.kind == DIRECTORY:
                waiting.append(inside)
    return found


def _write(fd: int, offset: int, data: bytes | memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], offset + done)
