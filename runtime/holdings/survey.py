"""Looks for files that only this host has. Blocking; run it in a worker thread."""

from __future__ import annotations

import heapq
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import ProtocolError
from ..mounts.copy_changes import changed
from ..mounts.packing import unpack_manifest
from ..removing import files_below
from .judging import is_checkpoint
from .layout import HostLayout, MountPlace
from .records import HeldFile, HostHoldings, Place

__all__ = ["MAX_FILES", "survey"]

MAX_FILES = 5_000
_LOOK_AT_TIME = 256


def survey(
    layout: HostLayout,
    within_s: float,
    most: int = MAX_FILES,
    of: Callable[[HeldFile], bool] = lambda _: True,
) -> HostHoldings:
    """Regular files in places that go with the host, of which the `most` that matter are named; only those
    that `of` says yes to count.
    """
    deadline = time.monotonic() + within_s
    count = size = looked_at = 0
    is_partial = False
    missed: list[OSError] = []
    # The least of those that are named is the first to go.
    named: list[tuple[bool, int, str, int, HeldFile]] = []
    for file in _files(layout, missed):
        looked_at += 1
        if looked_at % _LOOK_AT_TIME == 0 and time.monotonic() > deadline:
            is_partial = True
            break
        if file is None or not of(file):
            continue
        count += 1
        size += file.size
        item = (is_checkpoint(file), file.size, file.path, -count, file)
        if len(named) < most:
            heapq.heappush(named, item)
        elif item > named[0]:
            heapq.heapreplace(named, item)
    files = tuple(item[-1] for item in sorted(named, key=lambda one: (not one[0], -one[1], one[2])))
    return HostHoldings(files, count, size, is_partial or bool(missed))


def _files(layout: HostLayout, missed: list[OSError]) -> Iterator[HeldFile | None]:
    """Of scratch folders first: checkpoints are there, if anywhere. What lies below one in the tree counts
    where that has no such file: it was written while the folder was not bound. None for what is no file.
    `missed` is given why directories could not be looked at.
    """
    for mount in layout.mounts():
        for folder, real in mount.scratch_folders():
            yield from _below(os.path.join(mount.shown, folder), real, "scratch", missed)
    for mount in layout.mounts():
        bound = [(mount.written / folder, real) for folder, real in mount.scratch_folders()]
        for file in _below(mount.shown, mount.written, "workspace", missed):
            if file is None or not any(_is_hidden(Path(file.real), *one) for one in bound):
                yield file
        if mount.copy:
            yield from _written_to_copy(mount, missed)
    for shown, real in layout.temporary:
        yield from _below(shown, real, "temporary", missed)


def _is_hidden(file: Path, folder: Path, bound: Path) -> bool:
    return file.is_relative_to(folder) and os.path.lexists(bound / file.relative_to(folder))


def _written_to_copy(mount: MountPlace, missed: list[OSError]) -> Iterator[HeldFile | None]:
    """What is not as it was copied; nothing, where nobody knows what was."""
    try:
        copied = unpack_manifest(mount.copied.read_bytes())
    except (OSError, ProtocolError):
        return
    root = os.fsencode(mount.copy)
    try:
        for path, _ in changed(root, copied):
            name = os.fsdecode(path)
            yield from _file(f"{mount.shown}/{name}", f"{mount.copy}/{name}", "workspace")
    except OSError as error:  # such as one that is just being removed: what comes after it was not looked at
        missed.append(error)


def _below(shown: str, real: Path, place: Place, missed: list[OSError]) -> Iterator[HeldFile | None]:
    def miss(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            missed.append(error)

    for folder, names in files_below(str(real), miss):
        yield None
        there = shown + folder[len(str(real)) :]
        for name in names:
            yield from _file(f"{there}/{name}", os.path.join(folder, name), place)


def _file(path: str, real: str, place: Place) -> Iterator[HeldFile | None]:
    try:
        found = os.lstat(real)
    except OSError:
        yield None
        return
    if stat.S_ISREG(found.st_mode):
        yield HeldFile(path, real, found.st_size, found.st_blocks * 512, found.st_mtime_ns, place)
    else:
        yield None
