"""Directories as sorted entries, bounded whatever their size. Blocking; run it in a worker thread."""

from __future__ import annotations

import fnmatch
import heapq
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence

from ..errors import InvalidArgument
from ..file_records import FileEntry, FileListing
from ..names import quoted
from .opening import explain, kind_of

__all__ = ["list_path", "stat_path"]

_MAX_SEEN = 1_000_000
_MAX_DEPTH = 64

Matcher = Callable[[str], object]


class _Search:
    """A walk that stops at a count of entries or at a deadline (`time.monotonic()`), and remembers why."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.seen = 0
        self.skipped = 0
        self._stopped = ""

    @property
    def note(self) -> str:
        closed = f"{self.skipped:,} entries below could not be looked at" if self.skipped else ""
        return "; ".join(filter(None, (self._stopped, closed)))

    def goes_on(self) -> bool:
        self.seen += 1
        if self.seen > _MAX_SEEN:
            self._stopped = (
                f"stopped after {_MAX_SEEN:,} entries; narrow the pattern or list a directory below"
            )
        elif not self.seen % 256 and time.monotonic() > self.deadline:
            self._stopped = f"stopped after {self.seen:,} entries, the time was up; list a directory below"
        return not self._stopped


def list_path(path: str, pattern: str | None, limit: int, deadline: float) -> FileListing:
    """The first `limit` entries by name that match a glob (`*.pt`, `logs/**/*.txt`); links are not followed.

    Raises:
        NotFound, InvalidArgument: no such path, not readable, or a wrong limit.
    """
    if limit < 1:
        raise InvalidArgument(
            "invalid_argument", f"limit={limit}; it must be at least 1", "Call it with that."
        )
    try:
        entry = stat_path(path)
        target = os.stat(path) if entry.kind == "link" else None
        if (kind_of(target.st_mode) if target else entry.kind) != "directory":
            return FileListing(path, (entry,), directory=False)
        search = _Search(deadline)
        names, count = _smallest(_matching(path, pattern, search), limit)
        return FileListing(
            path, tuple(_describe(path, name) for name in names), count - len(names), search.note
        )
    except (OSError, ValueError) as error:
        raise explain(error, path) from error


def stat_path(path: str) -> FileEntry:
    """One path by itself, a link not followed. Raises OSError, ValueError."""
    return _entry(os.path.basename(path) or path, path)


def _entry(name: str, path: str) -> FileEntry:
    status = os.lstat(path)
    kind = kind_of(status.st_mode)
    return FileEntry(
        name=name,
        kind=kind,
        size=status.st_size,
        modified_at=status.st_mtime,
        mode=status.st_mode & 0o7777,
        target=os.readlink(path) if kind == "link" else "",
    )


def _describe(directory: str, name: str) -> FileEntry:
    """An entry that may have gone, or may not be looked at, since its name was read."""
    try:
        return _entry(name, os.path.join(directory, name))
    except OSError as error:
        return FileEntry(name, "unknown", error=error.strerror or str(error))


def _smallest(names: Iterator[str], limit: int) -> tuple[list[str], int]:
    count = 0

    def counted() -> Iterator[str]:
        nonlocal count
        for name in names:
            count += 1
            yield name

    return heapq.nsmallest(limit, counted()), count


def _matching(path: str, pattern: str | None, search: _Search) -> Iterator[str]:
    """Names, relative to the path, that match."""
    parts = [part for part in (pattern or "*").split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidArgument(
            "invalid_argument",
            f"the pattern '{quoted(pattern or '')}' leads out of the directory",
            "List the other directory.",
        )
    matchers: list[Matcher | None] = [
        None if part == "**" else re.compile(fnmatch.translate(part)).match for part in parts
    ]
    if pattern is None or not matchers:
        matchers = [lambda _: True]
    if matchers[-1] is None:
        matchers.append(lambda _: True)
    return _walk(path, "", {0}, matchers, search, _MAX_DEPTH)


def _walk(
    path: str, prefix: str, states: set[int], matchers: Sequence[Matcher | None], search: _Search, depth: int
) -> Iterator[str]:
    """Entries below a directory; `states` are the parts of the pattern that its entries may match next.

    `**` (None) stands for any directories, also none, so the part after it may match as well.
    """
    states = {state + skip for state in states for skip in ((0, 1) if matchers[state] is None else (0,))}
    try:
        entries = os.scandir(path)
    except OSError:
        if not prefix:
            raise
        search.skipped += 1
        return
    with entries:
        for entry in _readable(entries, search):
            if not search.goes_on():
                return
            following: set[int] = set()
            for state in states:
                matcher = matchers[state]
                if matcher is None:
                    following.add(state)
                elif matcher(entry.name):
                    following.add(state + 1)
            if len(matchers) in following:
                yield prefix + entry.name
                following.discard(len(matchers))
            if following and depth and _is_directory(entry, search):
                yield from _walk(entry.path, f"{prefix}{entry.name}/", following, matchers, search, depth - 1)


def _readable(entries: Iterator[os.DirEntry[str]], search: _Search) -> Iterator[os.DirEntry[str]]:
    """Entries up to where the directory can be read: one of a process that ends stops in the middle."""
    try:
        yield from entries
    except OSError:
        search.skipped += 1


def _is_directory(entry: os.DirEntry[str], search: _Search) -> bool:
    """Whether it is one to go on in; what may not be looked at, or has gone, is counted and left."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        search.skipped += 1
        return False
