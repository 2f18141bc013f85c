"""Keeps each rank's output file within a cap: its head and its tail stay, the middle falls out.

The rank appends to its file and knows nothing of it. Where the file system has holes, the middle is punched
out. Where it has none, the file is copied into segments and emptied, and segments of the middle are dropped;
what the rank writes between the end of a copy and the emptying (microseconds) is lost, and the layout
says so.

Work on files is done in a worker thread, since punching waits for the disk, with buffers of constant size.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from .. import _native
from ..output import Layout, Segment, layout_file, output_file, write_layout

__all__ = ["CapPolicy", "CappedFile", "OutputCap", "next_hole", "period_s"]

Punch = Callable[[int, int, int], None]
OnCapped = Callable[[Layout], None]

_MIB = 1024 * 1024
_CHUNK = 256 * 1024
_BLOCK = 4096
_QUIET_S, _BUSY_S, _RUSH_S = 0.25, 0.05, 0.01
_RETRY_S = 1.0
_NO_HOLES = (errno.EOPNOTSUPP, errno.ENOSYS)
_SEGMENTS_NOTE = (
    "this file system has no holes: where the middle fell out, lines at the end of a kept part may be lost"
)
_TRUNCATED_NOTE = "the program emptied its own output"


@dataclass(frozen=True, slots=True)
class CapPolicy:
    """Bytes on disk for one output: at most `cap`, of which the first `head` stay for ever."""

    cap: int = 64 * _MIB
    head: int = 8 * _MIB

    def __post_init__(self) -> None:
        if not _BLOCK <= self.head <= self.cap // 4:
            raise ValueError(f"head must be at least {_BLOCK} bytes and at most a quarter of the cap")

    def limit(self, rate: float, reaction_s: float) -> int:
        """From how many bytes on the middle falls out, so that a writer of `rate` bytes/s keeps the cap."""
        margin = min(max(int(rate * reaction_s * 3), self.cap // 8), self.cap // 2)
        return self.cap - margin


def next_hole(
    size: int, layout: Layout, policy: CapPolicy, limit: int, block: int = _BLOCK
) -> tuple[int, int] | None:
    """The range of offsets that falls out next, aligned to blocks; None while the file is below the limit."""
    if size - (layout.gap_end - layout.gap_start) <= limit:
        return None
    head = -(-policy.head // block) * block
    start = layout.gap_end or head
    tail = (limit - head) * 3 // 4  # less than the limit allows: each hole is worth its cost
    end = (size - tail) // block * block
    return (start, end) if end > start else None


def period_s(grown: int, elapsed_s: float, kept: int, policy: CapPolicy) -> float:
    """When to look again at a file that grew by `grown` bytes in `elapsed_s` seconds and has `kept` bytes."""
    if grown <= 0 or elapsed_s <= 0:
        return _QUIET_S if kept < policy.cap // 2 else _BUSY_S
    to_cap_s = max(0, policy.cap - kept) * elapsed_s / grown
    return min(max(to_cap_s / 16, _RUSH_S), _BUSY_S)


class CappedFile:
    """One output file and its layout. Its methods block; one thread at a time."""

    def __init__(
        self, run_directory: Path, label: str, policy: CapPolicy, punch: Punch = _native.punch_hole
    ) -> None:
        self.run_directory = run_directory
        self.label = label
        self.policy = policy
        self.layout = Layout()
        self.path = output_file(run_directory, label)
        self.rate = 0.0
        self.reaction_s = _BUSY_S
        self._punch = punch
        self._holes: bool | None = None
        self._segments_made = 0
        self._size = 0
        self._seen_at = time.monotonic()
        self._rest_until = 0.0

    @property
    def kept(self) -> int:
        """Bytes on disk when last looked at."""
        return self.layout.base + self._size - (self.layout.gap_end - self.layout.gap_start)

    def look(self) -> float:
        """Notes size and rate; returns in how many seconds to look again."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return _QUIET_S
        now = time.monotonic()
        grown, elapsed = size - self._size, now - self._seen_at
        self.rate = max(grown, 0) / elapsed if elapsed > 0 else self.rate
        self._size, self._seen_at = size, now
        return period_s(grown, elapsed, self.kept, self.policy)

    @property
    def is_due(self) -> bool:
        """Whether there is anything for `trim` to do; not for a moment after the disk refused."""
        if self._seen_at < self._rest_until:
            return False
        if self._holes is None:
            return self._size >= self.policy.head // 2  # early enough to learn whether there are holes
        if not self._holes:
            return self._size >= self.policy.head
        emptied = self._size < self.layout.gap_end
        return emptied or self.kept > self.policy.limit(self.rate, self.reaction_s)

    def trim(self) -> bool:
        """Takes the middle out if it is due; whether anything fell out.

        Raises:
            OSError: the disk refused; nothing was lost, and it may be tried again.
        """
        began = time.monotonic()
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            if self._holes is None:
                self._holes = self._makes_holes(fd)
            before = self.layout.gap_end
            if self._holes:
                self._punch_middle(fd)
            else:
                self._move_to_segment(fd)
            self._size = os.fstat(fd).st_size
        except OSError:
            self._rest_until = time.monotonic() + _RETRY_S
            raise
        finally:
            os.close(fd)
        self.reaction_s = _BUSY_S + time.monotonic() - began
        return self.layout.gap_end > before

    def _makes_holes(self, fd: int) -> bool:
        beyond = (os.fstat(fd).st_size // _BLOCK + 1) * _BLOCK
        try:
            self._punch(fd, beyond, _BLOCK)
        except OSError as error:
            if error.errno in _NO_HOLES:
                return False
            raise
        return True

    def _punch_middle(self, fd: int) -> None:
        status = os.fstat(fd)
        if status.st_size < self.layout.gap_end:
            self._write(Layout(note=_TRUNCATED_NOTE))
        block = max(_BLOCK, status.st_blksize)
        limit = self.policy.limit(self.rate, self.reaction_s)
        hole = next_hole(status.st_size, self.layout, self.policy, limit, block)
        if hole is None:
            return
        start, end = hole
        lines = self.layout.gap_lines + _count_lines(fd, start, end)
        gap_start = self.layout.gap_start or start
        self._write(replace(self.layout, gap_start=gap_start, gap_end=end, gap_lines=lines))
        self._punch(fd, start, end - start)

    def _move_to_segment(self, fd: int) -> None:
        if os.fstat(fd).st_size < self.policy.head:
            return
        self._drop_segments(2 * os.fstat(fd).st_size)
        name = f"{self.label}.seg-{self._segments_made}"
        old = self.layout
        copy = os.open(self.run_directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            size = _copy(fd, copy, 0, self.policy.cap)
            last = Segment(name, old.base, -1)
            self._write(replace(old, segments=(*old.segments, last), moving=True, note=_SEGMENTS_NOTE))
            size = _copy(fd, copy, size, self.policy.cap)
            os.ftruncate(fd, 0)
        except OSError:
            with suppress(OSError):
                self._write(old)
            with suppress(OSError):
                os.unlink(self.run_directory / name)
            raise
        finally:
            os.close(copy)
        self._segments_made += 1
        whole = (*old.segments, replace(last, size=size))
        self._write(replace(self.layout, segments=whole, base=old.base + size, moving=False))

    def _drop_segments(self, room: int) -> None:
        """Drops the oldest segments behind the head until `room` more bytes stay below the cap."""
        while len(self.layout.segments) > 1:
            kept = sum(part.size for part in self.layout.segments)
            if kept + room <= self.policy.cap:
                return
            head, victim, *rest = self.layout.segments
            path = self.run_directory / victim.name
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                lines = self.layout.gap_lines + _count_lines(fd, 0, victim.size)
            finally:
                os.close(fd)
            gap_start = self.layout.gap_start or victim.start
            gap_end = victim.start + victim.size
            self._write(
                replace(
                    self.layout, gap_start=gap_start, gap_end=gap_end, gap_lines=lines, segments=(head, *rest)
                )
            )
            os.unlink(path)

    def _write(self, layout: Layout) -> None:
        if layout == Layout():
            layout_file(self.run_directory, self.label).unlink(missing_ok=True)
        else:
            write_layout(self.run_directory, self.label, layout)
        self.layout = layout


class OutputCap:
    """Watches all outputs of a host in one task: `run` it for as long as files grow."""

    def __init__(self, policy: CapPolicy | None = None, *, punch: Punch = _native.punch_hole) -> None:
        self.policy = policy or CapPolicy()
        self._punch = punch
        self._files: dict[tuple[Path, str], tuple[CappedFile, OnCapped]] = {}
        self._watched = anyio.Event()
        self._trimming = anyio.Lock()

    def watch(self, run_directory: Path, label: str, on_capped: OnCapped) -> None:
        """Caps this output from now on. `on_capped` is called on the loop when its middle first falls out."""
        file = CappedFile(run_directory, label, self.policy, self._punch)
        self._files[run_directory, label] = (file, on_capped)
        self._watched.set()

    async def finish(self, run_directory: Path, label: str | None = None) -> None:
        """Caps the outputs of a run (or the one of that label) a last time and forgets them.

        Nobody writes to them any more.
        """
        for key in [key for key in self._files if key[0] == run_directory and label in (None, key[1])]:
            file, on_capped = self._files[key]
            file.look()
            await self._trim(file, on_capped)
            del self._files[key]

    async def run(self) -> None:
        """Watches for ever; sleeps while there is nothing to watch."""
        while True:
            if not self._files:
                self._watched = anyio.Event()
                await self._watched.wait()
            period = _QUIET_S
            for file, on_capped in list(self._files.values()):
                period = min(period, file.look())
                await self._trim(file, on_capped)
            await anyio.sleep(period)

    async def _trim(self, file: CappedFile, on_capped: OnCapped) -> None:
        async with self._trimming:
            if not file.is_due:
                return
            first = not file.layout.gap_end
            with suppress(OSError):  # a full disk is tried again later
                if await anyio.to_thread.run_sync(file.trim) and first:
                    on_capped(file.layout)


def _count_lines(fd: int, start: int, end: int) -> int:
    lines = 0
    while start < end and (chunk := os.pread(fd, min(_CHUNK, end - start), start)):
        lines += chunk.count(b"\n")
        start += len(chunk)
    return lines


def _copy(source: int, target: int, start: int, most: int) -> int:
    """Appends to `target` what `source` has from `start` on, what comes meanwhile too; returns where it ends.

    Of a writer that is faster than the copy, `most` bytes are taken; the rest is lost with the emptying.
    """
    stop = start + most
    while start < stop and (chunk := os.pread(source, _CHUNK, start)):
        view = memoryview(chunk)
        while view:
            view = view[os.write(target, view) :]
        start += len(chunk)
    return start
