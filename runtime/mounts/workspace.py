"""A directory of this machine as a source: scanned once, followed from then on, with a barrier.

async with open_workspace(Path("~/project")) as workspace:
    revision = await workspace.barrier()
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from ..errors import NotFound
from ..filesystems import NETWORK_TYPES, file_system_type
from ..tasks import background_tasks
from .contents import digest_of, read_all, read_version, tick_s
from .deltas import Delta, DeltaLog
from .excludes import IGNORE_FILE, Excluded, Rules
from .manifest import FILE, Entry, FileRef, Manifest, split
from .next_revision import NextRevision
from .outgoing import Outgoing
from .scanning import Place, Scanned, counted, look, rules_of, scan
from .source import Bytes, Gone
from .versions import Ledger, mark_of
from .watcher import EVERYTHING, Watcher

__all__ = ["Workspace", "open_workspace"]

_COALESCE_S = 0.001
_RECENT_S = 60.0
_MOST_RECENT = 4096
_MOST_READ = 1024
_MOST_COMPARED = 4 * 1024 * 1024
_INLINE = 32
_YOUNG_NS = 5_000_000_000  # more than a ledger asks for
_MOST_READS = 8

Seen = tuple[bytes, Entry | Excluded | None]


class Workspace:
    """A `Source`. All of it is the loop's, but for what runs in threads."""

    def __init__(
        self,
        root: Path,
        *,
        more_rules: Iterable[bytes] = (),
        known: Mapping[bytes, tuple[int, int]] | None = None,
        last: tuple[int, int] | None = None,
    ) -> None:
        self.root = root
        self._last = last
        self._digest = 0
        self._more_rules = tuple(more_rules)
        self.manifest = Manifest(epoch=time.time_ns())
        self.excluded: dict[bytes, Excluded] = {}
        self.unreadable: list[bytes] = []
        self.scan_s = 0.0
        self.bytes_read = 0
        self._salts: dict[tuple[int, int], int] = {}
        self._look_for_root(os.stat(root))
        self._ledger = Ledger(known)
        self._log = DeltaLog()
        self.watcher: Watcher | None = None
        self._dirty: dict[bytes, bool] = {}
        self._recent: dict[bytes, float] = {}
        self._read: dict[bytes, None] = {}
        self._served: dict[int, bytes] = {}
        self._path_of: tuple[int, dict[int, bytes]] = (-1, {})
        self._stirred = anyio.Event()
        self._changed = anyio.Event()
        self._lock = anyio.Lock()
        self._outgoing = Outgoing()
        self._readers = anyio.CapacityLimiter(_MOST_READS)

    # What a follower asks.

    async def open(self) -> Manifest:
        return self.manifest

    async def since(self, epoch: int, revision: int) -> Delta | Manifest:
        if epoch != self.manifest.epoch or revision > self.manifest.revision:
            return self.manifest
        while revision == self.manifest.revision:
            await self._changed.wait()
        return self._log.since(revision) or self.manifest

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        entry = self.manifest.entry(file.path)
        if entry is None and (path := self._path_with(file.version)) is not None:
            file = file._replace(path=path)
        elif entry is None or entry.version != file.version:
            raise Gone
        if offset < 0 or length < 0 or offset + length > file.size:
            raise Gone
        self._note_read(file.path)
        try:
            into = await self._outgoing.take(length)
            data = await anyio.to_thread.run_sync(
                read_version, self._place, file, offset, length, self._tick_s, into, limiter=self._readers
            )
        except Gone:
            self._hint(file.path, False)  # perhaps nobody told
            raise
        self._note_served(file, data)
        return data

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        found = await anyio.to_thread.run_sync(
            read_all, self._place, files, self._tick_s, limiter=self._readers
        )
        for file, data in zip(files, found, strict=True):
            if data is not None:
                self._note_read(file.path)
                self._note_served(file, data)
        return found

    # What its owner asks.

    async def barrier(self) -> int:
        """A revision that contains every change that was made to the tree before the call.

        Stores through a mapping raise no event. They are found in files that were read lately, and where they
        leave no trace in `stat` either, in those up to 4 MiB that changed in the last minute. On a network
        file system, whose other clients nobody hears of, the whole tree is looked at.

        Raises:
            NotFound: file_not_found, the directory itself is not there now.
        """
        caught_up = self.watcher is not None and await self.watcher.caught_up()
        if not caught_up or self.is_remote:
            self._hint(EVERYTHING, True)
        for path in (*self._lately_changed(), *self._place.linked, *self._read):
            self._dirty.setdefault(path, False)
        await self._settle()
        await self._compare_contents()
        if self._root_is is None:
            raise NotFound(
                "file_not_found", f"{self.root} is not there", "Have it there again, then repeat the call."
            )
        return self.manifest.revision

    def weigh_excluded(self) -> list[Excluded]:
        """What is left out, with its files and bytes. Blocks: call it in a thread."""
        return counted(self._place.root, tuple(self.excluded.values()))

    def to_keep(self) -> dict[bytes, tuple[int, int]]:
        """What the next source of this directory should be given as `known`: see `Ledger.to_keep`."""
        now_ns = time.time_ns()
        return self._ledger.to_keep(self.manifest.younger(now_ns - _YOUNG_NS), now_ns)

    def news_to_keep(self) -> dict[bytes, tuple[int, int]]:
        """What is to be laid over `to_keep` since it, or this, was asked last."""
        return self._ledger.take_news()

    async def begin(self) -> None:
        """Scans the tree and watches it.

        Raises:
            Unavailable: watch_unusable.
        """
        self.watcher = Watcher(self._place.root, self._hint)
        start = time.perf_counter()
        scanned = await self.scanned(b"")
        self.scan_s = time.perf_counter() - start
        self.note(scanned)
        self.manifest.directories = scanned.directories
        self.manifest.root = _root(self._place) or self.manifest.root
        for path, entry in self.manifest.walk():
            self._digest ^= mark_of(path, entry)
        revision, digest = self._last or (1, self._digest)
        self.manifest.revision = revision if digest == self._digest else revision + 1
        self._ledger.present_all(scanned.directories)
        await self._settle()

    @property
    def state(self) -> tuple[int, int]:
        """The revision, and a digest of the tree: what the next source should be given as `last`."""
        return self.manifest.revision, self._digest

    def changed(self, path: bytes, before: Entry | None, after: Entry | None) -> None:
        """An entry of the manifest is another one, or comes or goes."""
        for entry in (before, after):
            if entry is not None:
                self._digest ^= mark_of(path, entry)

    async def follow(self) -> None:
        """Publishes what the watcher tells, until cancelled."""
        while True:
            await self._stirred.wait()
            await anyio.sleep(_COALESCE_S)
            await self._settle()

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.close()

    def _look_for_root(self, found: os.stat_result) -> None:
        """`root` may be a symlink, or below one: what it names now is looked at from now on."""
        real = Path(os.path.realpath(self.root))
        kind = file_system_type(real)
        self.is_remote = kind in NETWORK_TYPES or kind.startswith("fuse")
        self._tick_s = tick_s(kind, os.uname().release)
        self._rules = rules_of(real, self._more_rules)
        self._place = Place(os.fsencode(real), found.st_dev, Rules(self._rules), self._salts)
        self._root_is: tuple[int, int] | None = (found.st_dev, found.st_ino)

    def _is_another_root(self) -> bool:
        """Whether another directory stands where the root was, or one does again: nobody tells of that, nor
        of what is in it. While there is none, what was shown last stays, and barriers say so.
        """
        try:
            found = os.stat(self.root)
        except OSError:
            found = None
        if found is None or not stat.S_ISDIR(found.st_mode):
            self._root_is = None
            return False
        if self._root_is == (found.st_dev, found.st_ino):
            return False
        self._look_for_root(found)
        if self.watcher is not None:
            self.watcher.root = self._place.root
        return True

    # How changes are found.

    def _hint(self, path: bytes, deep: bool) -> None:
        if path == EVERYTHING:
            path = b""
        self._dirty[path] = self._dirty.get(path, False) or deep
        if path:
            self.changed_lately(path)
        self._stirred.set()

    def changed_lately(self, path: bytes) -> None:
        self._recent.pop(path, None)
        self._recent[path] = time.monotonic()
        if len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]

    def _note_read(self, path: bytes) -> None:
        self._read.pop(path, None)
        self._read[path] = None
        if len(self._read) > _MOST_READ:
            del self._read[next(iter(self._read))]

    def _note_served(self, file: FileRef, data: Bytes) -> None:
        self.bytes_read += len(data)
        if file.path in self._recent and len(data) == file.size <= _MOST_COMPARED:
            self._served[file.version] = digest_of(data)

    def _lately_changed(self) -> list[bytes]:
        oldest = time.monotonic() - _RECENT_S
        for path in tuple(self._recent):
            if self._recent[path] >= oldest:
                break
            del self._recent[path]
        if not self._recent:
            self._served.clear()
        return list(self._recent)

    async def _settle(self) -> None:
        """Compares what may have changed with what is there, and publishes the difference as one revision."""
        async with self._lock:
            if self._stirred.is_set():  # else somebody waits for this one
                self._stirred = anyio.Event()
            taken, self._dirty = self._dirty, {}
            if self._is_another_root():
                taken[b""] = True
            if not taken or self._root_is is None:
                return
            if IGNORE_FILE in taken and self._has_other_rules():
                taken[b""] = True
            change = NextRevision(self)
            paths = [b""] if taken.get(b"") else sorted(taken)
            looked_at = dict.fromkeys([*paths, *(split(path)[0] for path in paths)])
            try:
                seen = await self._look_at(sorted(looked_at))
                for path, found in seen:
                    await change.one(path, found, deep=taken.get(path, False))
            except BaseException:  # cancelled too: what is left of it nobody else would look for
                self._dirty[b""] = True
                self._stirred.set()
                raise
            finally:
                self._publish(change)  # the manifest has it already

    def _has_other_rules(self) -> bool:
        """Whether what is left out is to be other than it was: then it is from now on."""
        rules = rules_of(Path(os.fsdecode(self._place.root)), self._more_rules)
        if rules == self._rules:
            return False
        self._rules, self._place = rules, replace(self._place, rules=Rules(rules))
        return True

    async def _look_at(self, paths: list[bytes]) -> list[Seen]:
        known = [path for path in paths if not path or split(path)[0] in self.manifest.directories]
        look_all = partial(_look_at, self._place, known)
        return look_all() if len(known) <= _INLINE else await anyio.to_thread.run_sync(look_all)

    def _publish(self, change: NextRevision) -> None:
        if not change.removed and not change.put:
            return
        base = self.manifest.revision
        self.manifest.revision = base + 1
        put = tuple(sorted(change.put.items()))
        self._log.add(Delta(self.manifest.epoch, base, base + 1, tuple(change.removed), put))
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _compare_contents(self) -> None:
        """Finds what changed lately, was served, and changed again without a trace."""
        for path in tuple(self._recent):
            entry = self.manifest.entry(path)
            if entry is None or (served := self._served.get(entry.version)) is None:
                continue
            try:
                data = await anyio.to_thread.run_sync(
                    read_version, self._place, FileRef(path, entry.version, entry.size), 0, entry.size, 0.0
                )
                if digest_of(data) == served:
                    continue
                found = os.lstat(self._place.absolute(path))
            except Exception:  # it changed, this time with a trace, or cannot be read
                continue
            key = (found.st_dev, found.st_ino)
            self._salts[key] = self._salts.get(key, 0) + 1
            self._dirty.setdefault(path, False)
        await self._settle()

    def _path_with(self, version: int) -> bytes | None:
        """Where a version is now: its directory may have been renamed since."""
        if self._path_of[0] != self.manifest.revision:
            files = ((entry.version, path) for path, entry in self.manifest.walk() if entry.kind == FILE)
            self._path_of = (self.manifest.revision, dict(files))
        return self._path_of[1].get(version)

    # How one revision comes to be.

    async def scanned(self, path: bytes) -> Scanned:
        watcher = self.watcher
        return await anyio.to_thread.run_sync(scan, self._place, path, watcher.add if watcher else None)

    def note(self, scanned: Scanned) -> None:
        self.unreadable += scanned.unreadable
        self.excluded.update((one.path, one) for one in scanned.excluded)

    def unwatch(self, path: bytes) -> None:
        if self.watcher is not None:
            self.watcher.remove(path)

    def present(self, path: bytes, before: Entry | None, found: Entry) -> Entry:
        return self._ledger.present(path, before, found)

    def forget(self, path: bytes, entry: Entry) -> None:
        self._ledger.removed(path, entry)


def _root(place: Place) -> Entry | None:
    found = look(place, b"")
    return found if isinstance(found, Entry) else None


def _look_at(place: Place, paths: Iterable[bytes]) -> list[Seen]:
    return [(path, look(place, path)) for path in paths]


@asynccontextmanager
async def open_workspace(
    root: Path,
    *,
    excludes: Iterable[str] = (),
    known: Mapping[bytes, tuple[int, int]] | None = None,
    last: tuple[int, int] | None = None,
) -> AsyncIterator[Workspace]:
    """A directory as a source, followed for the length of a `with` block.

    `excludes` are rules more; `known` is what `Workspace.to_keep` of its last source gave, `last` its
    `state`: revisions go on from there, and a tree that is as it was has the same one.

    Raises:
        NotFound: file_not_found, it is no directory.
        Unavailable: watch_unusable.
    """
    root = root.absolute()
    if not root.is_dir():
        raise NotFound("file_not_found", f"{root} is no directory", "Name one that exists.")
    workspace = Workspace(root, more_rules=map(os.fsencode, excludes), known=known, last=last)
    try:
        await workspace.begin()
        async with background_tasks() as tasks:
            tasks.start_soon(workspace.follow)
            yield workspace
    finally:
        workspace.close()
