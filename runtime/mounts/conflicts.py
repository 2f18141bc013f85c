"""Where the client has changed what a host wrote: the client's is shown, the host's is kept beside it.

And where a host's changes are discarded. The judgement is `Overlay.clashes`; here it is carried out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio
import anyio.to_thread

from ..errors import Unavailable
from .host_changes import HostChanges
from .manifest import DIRECTORY, FILE, LINK, Change, FileRef, join, split
from .overlay import NOTHING, Clash, HostCopy, aside_names, is_within
from .overlay_log import CLASHED, FORGOTTEN, OVER, Record
from .source import Bytes, Gone, Reads, Unreadable
from .upper import Stamp, Usage

__all__ = ["SMALL", "Moved", "Settled", "Settler"]

logger = logging.getLogger(__name__)

SMALL = 1024 * 1024
"""Files of at most so many bytes are compared: what is the same on both sides is no conflict."""
_AT_ONCE = 4
_GROUP = 64
_GROUP_BYTES = 4 * SMALL


class Moved(NamedTuple):
    old: bytes
    new: bytes
    kind: int


@dataclass(slots=True)
class Settled:
    """What was done: `touched` are names that may show something else now."""

    copies: list[HostCopy] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    touched: list[bytes] = field(default_factory=list)


class Settler:
    """`reads` has the client's bytes."""

    def __init__(self, changes: HostChanges, reads: Reads) -> None:
        self._changes = changes
        self._overlay = changes.overlay
        self._upper = changes.upper
        self._reads = reads

    async def settle(self, changed: Sequence[Change] | None) -> Settled:
        """After these changes of the manifest; None: after any, while nobody looked."""
        if changed is None:
            paths = self._overlay.known()
        else:
            paths = [join(change.directory, change.name) for change in changed]
            self._take_over(changed)
        clashes = self._overlay.clashes(paths)
        same = await self._same(clashes)
        settled = Settled()
        for clash in clashes:
            try:
                self._settle_one(clash, same.get(clash.path), settled)
            except OSError as error:
                logger.error("what this host wrote to %s stays: %s", os.fsdecode(clash.path), error)
        self._changes.untold += settled.copies
        return settled

    def discard(self, keep: Iterable[bytes]) -> Settled:
        """All that the host did, but for what is at or below these paths. The bytes are in the trash then."""
        kept, settled, overlay = tuple(keep), Settled(), self._overlay
        for path in sorted(overlay.known_below(b"")):
            if is_within(path, kept):
                continue
            written = overlay.written(path)
            if written is None:
                overlay.forget(path)  # it was removed, or has gone with its directory
            elif written.entry.kind == DIRECTORY and any(one.startswith(path + b"/") for one in kept):
                continue
            else:
                for inside, _ in overlay.below(path):
                    self._changes.on_going(inside)
                self._changes.on_going(path)
                self._upper.throw_away(path)
                for inside in [*overlay.known_below(path), path]:
                    overlay.forget(inside)
                    settled.touched.append(inside)
            settled.touched.append(path)
        return settled

    async def discarded(self) -> Usage:
        """What `discard` has thrown away is gone, and the log knows.

        Raises:
            OSError: no room for the log, which then does not know.
        """
        counted = await anyio.to_thread.run_sync(self._upper.empty_trash)
        self._changes.rewrite_log()
        return counted

    def _settle_one(self, clash: Clash, same: Stamp | None, settled: Settled) -> None:
        path = clash.path  # which the host may have changed, or moved, since
        now = self._overlay.judged(path)
        if now is None and clash.what in ("reopen", "aside"):
            now = self._overlay.hiding(path)
        if now is None:
            return
        what = now.what
        settled.touched.append(path)
        if what == "aside":
            self._aside(path, same, settled)
        elif what == "orphan":
            self._orphan(path, settled)
        elif what == "merge":
            self._overlay.set_written(path, DIRECTORY, self._overlay.base_below(path))
            self._note([Record(OVER, path, self._overlay.base(path))])
        else:
            if what == "back":
                self._note([Record(CLASHED, path)])
                settled.copies.append(HostCopy(path, b""))
                self._forget_below(path)
            self._overlay.forget(path)
            self._note([Record(FORGOTTEN, path)])

    def _aside(self, path: bytes, same: Stamp | None, settled: Settled) -> None:
        written = self._overlay.written(path)
        if written is None:
            return
        kind = written.entry.kind
        is_empty = written.is_shared and not self._overlay.has_own_below(path)
        if is_empty or self._upper.stamp(path) in (same, self._changes.pristine.get(path)):
            self._drop(path, settled)
            return
        self._prune(path, settled)
        directory, name = split(path)
        fresh = next(
            join(directory, one)
            for one in aside_names(name)
            if self._overlay.at(directory, one) is None and not self._overlay.has(join(directory, one))
        )
        moving = self._overlay.moving(path, fresh)
        self._note([Record(CLASHED, path, kept=fresh)])
        os.rename(self._upper.path(path), self._upper.path(fresh))
        for old, _, _, _ in moving:
            self._overlay.forget(old)
        self._note([Record(FORGOTTEN, old) for old, _, _, _ in moving])
        self._forget_below(path)
        for _, new, one, base in moving:
            self._overlay.set_written(new, one.entry.kind, base)
        settled.touched.append(fresh)
        settled.moved.append(Moved(path, fresh, kind))
        settled.copies.append(HostCopy(path, fresh))

    def _orphan(self, path: bytes, settled: Settled) -> None:
        written = self._overlay.written(path)
        if written is None or (written.is_shared and not self._overlay.has_own_below(path)):
            self._drop(path, settled)
            return
        self._overlay.set_written(path, DIRECTORY, NOTHING)
        self._note([Record(FORGOTTEN, path)])

    def _drop(self, path: bytes, settled: Settled) -> None:
        """Nothing is lost with it."""
        self._changes.on_going(path)
        self._changes.pristine.pop(path, None)
        written = self._overlay.written(path)
        if written is not None and written.entry.kind == DIRECTORY:
            for inside, _ in sorted(self._overlay.below(path), reverse=True):
                os.rmdir(self._upper.path(inside))
                settled.touched.append(inside)
            os.rmdir(self._upper.path(path))
        else:
            self._upper.remove(path)
        self._forget_below(path)
        self._overlay.forget(path)
        self._note([Record(FORGOTTEN, path)])

    def _prune(self, path: bytes, settled: Settled) -> None:
        """No directories below, that were made for what is gone."""
        for inside, one in sorted(self._overlay.below(path), reverse=True):
            if one.is_shared and not self._overlay.has_own_below(inside):
                self._drop(inside, settled)

    def _forget_below(self, path: bytes) -> None:
        """What the host removed from a directory of the client's, that is none any more."""
        if (now := self._overlay.manifest.entry(path)) is not None and now.kind == DIRECTORY:
            return
        paths = self._overlay.known_below(path)
        for inside in paths:
            self._overlay.forget(inside)
        self._note([Record(FORGOTTEN, inside) for inside in paths])

    def _take_over(self, changed: Iterable[Change]) -> None:
        """Modes of directories are the client's; that there is something new in one, its time tells."""
        for change in changed:
            path, after = join(change.directory, change.name), change.after
            if after is None or after.kind != DIRECTORY or not self._overlay.is_written(path):
                continue
            if (entry := self._overlay.entry(path)) is None or entry.kind != DIRECTORY:
                continue
            with suppress(OSError):
                absolute = self._upper.path(path)
                if change.before is None or change.before.mode != after.mode:
                    os.chmod(absolute, after.mode)
                if path:
                    os.utime(absolute)

    async def _same(self, clashes: Iterable[Clash]) -> dict[bytes, Stamp]:
        """Those whose content is that of the client's, with what tells that they have not changed since."""
        found: dict[bytes, Stamp] = {}
        files: list[tuple[FileRef, Stamp]] = []
        for path, what in clashes:
            written, entry = self._overlay.written(path), self._overlay.manifest.entry(path)
            if what != "aside" or not written or not entry or written.entry.kind != entry.kind:
                continue
            with suppress(OSError):
                stamp = self._upper.stamp(path)
                if entry.kind == FILE and stamp.size == entry.size <= SMALL:
                    files.append((FileRef(path, entry.version, entry.size), stamp))
                elif entry.kind == LINK and os.readlink(self._upper.path(path)) == entry.target:
                    found[path] = stamp
        groups = _in_groups(files)

        async def compare() -> None:
            for group in groups:
                with suppress(Gone, Unreadable, Unavailable):
                    theirs = await self._reads.read_whole([file for file, _ in group])
                    for (file, stamp), data in zip(group, theirs, strict=True):
                        if data is not None and self._has(file.path, data):
                            found[file.path] = stamp

        async with anyio.create_task_group() as tasks:
            for _ in range(_AT_ONCE):
                tasks.start_soon(compare)
        return found

    def _has(self, path: bytes, data: Bytes) -> bool:
        with suppress(OSError), open(self._upper.path(path), "rb") as file:
            return file.read(SMALL + 1) == bytes(data)
        return False

    def _note(self, records: list[Record]) -> None:
        try:
            self._changes.log.add(records)
        except OSError as error:  # a next process judges some of it again
            logger.warning("conflicts are not written down: %s", error)


def _in_groups(files: Iterable[tuple[FileRef, Stamp]]) -> Iterator[list[tuple[FileRef, Stamp]]]:
    """What is asked for at once: a round trip for each file would take a thousand times as long."""
    group: list[tuple[FileRef, Stamp]] = []
    size = 0
    for one in files:
        group.append(one)
        size += one[0].size
        if len(group) == _GROUP or size > _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
