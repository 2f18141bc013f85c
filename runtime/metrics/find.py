"""Which files a rank writes metrics to: what its processes have open, else what is below its directory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["changed_files", "is_event_file", "is_metric_file", "names_process", "written_files"]

_EVENTS = re.compile(r"\.tfevents\.")
_EVENTS_PID = re.compile(r"\.tfevents\.\d+\..*\.(\d+)\.\d+$")
_LINES = re.compile(r"\.(?:jsonl|ndjson)$|(?:^|[/_.-])(?:log|logs|metrics|history|progress)\.json$")
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})
_DEPTH = 5
_ENTRIES = 20_000
_MOST_FILES = 16
_MOST_FDS = 4096


def is_event_file(path: str) -> bool:
    """Whether it is named as TensorBoard's event files are."""
    return _EVENTS.search(os.path.basename(path)) is not None


def is_metric_file(path: str) -> bool:
    """Whether it may be a file of metrics, by its name."""
    return is_event_file(path) or _LINES.search(path) is not None


def written_files(pids: Iterable[int], proc: Path = Path("/proc")) -> tuple[str, ...]:
    """Files of metrics that these processes have open for writing."""
    found: dict[str, None] = {}
    for pid in pids:
        for path in _written_by(proc / str(pid)):
            found[path] = None
    return tuple(found)[:_MOST_FILES]


def _written_by(process: Path) -> Iterator[str]:
    try:
        numbers = os.listdir(process / "fd")[:_MOST_FDS]
    except OSError:
        return
    for number in numbers:
        try:
            path = os.readlink(process / "fd" / number)
            if is_metric_file(path) and _for_writing(process, number):
                yield path
        except (OSError, ValueError, StopIteration):
            continue


def _for_writing(process: Path, number: str) -> bool:
    lines = (process / "fdinfo" / number).read_text().splitlines()
    flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def changed_files(cwd: str, since: float, pids: Sequence[int] = (), within_s: float = 0.5) -> tuple[str, ...]:
    """Files of metrics below `cwd` that were written after `since` (wall clock), latest first.

    An event file whose name has the pid of another process is somebody else's. The walk ends after some
    depth, many entries, or `within_s`.
    """
    until = time.monotonic() + within_s
    found: list[tuple[float, str]] = []
    todo = [(cwd, 0)]
    entries = 0
    while todo and entries < _ENTRIES and time.monotonic() < until:
        directory, depth = todo.pop(0)
        try:
            with os.scandir(directory) as here:
                for entry in here:
                    entries += 1
                    if entries > _ENTRIES:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        if depth < _DEPTH and entry.name[:1] != "." and entry.name not in _SKIPPED:
                            todo.append((entry.path, depth + 1))
                    elif is_metric_file(entry.path) and _may_be_of(entry.name, pids):
                        changed = entry.stat().st_mtime
                        if changed >= since:
                            found.append((changed, entry.path))
        except OSError:
            continue
    return tuple(path for _, path in sorted(found, reverse=True)[:_MOST_FILES])


def names_process(path: str) -> bool:
    """Whether the name of an event file tells who wrote it."""
    return _EVENTS_PID.search(os.path.basename(path)) is not None


def _may_be_of(name: str, pids: Sequence[int]) -> bool:
    owner = _EVENTS_PID.search(name)
    return owner is None or not pids or int(owner[1]) in pids
