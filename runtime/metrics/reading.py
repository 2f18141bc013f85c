"""The metrics of one rank, from wherever they are: bounded in bytes and in time."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from . import find
from .json_lines import find_note, parse_json_lines, parse_reported
from .printed import parse_printed
from .series import MetricPoint, RankMetrics, collect
from .tensorboard import parse_events

__all__ = ["metric_files", "read_rank_metrics", "read_whole_lines"]

_HEAD = 256 * 1024
_TAIL = 768 * 1024
_OUTPUT_TAIL = 128 * 1024
_MOST_FILES = 4
_CUT = "the middle of a long file was not read"
_Parse = Callable[[bytes], Iterable[MetricPoint]]


def metric_files(run_directory: Path, label: str) -> tuple[Path, ...]:
    """What `report` wrote for the rank of this label, the process that reported first before its children."""
    return tuple(sorted(run_directory.glob(f"{label}.metrics.*"), key=_started))


def _started(path: Path) -> tuple[float, str]:
    try:
        with path.open("rb") as file:
            first = file.read(64).split(b",", 1)[0].lstrip(b"[")
        return (float(first), path.name)
    except (OSError, ValueError):
        return (float("inf"), path.name)


def read_rank_metrics(
    run_directory: Path,
    label: str,
    *,
    pids: Sequence[int] = (),
    cwd: str = "",
    since: float = 0.0,
    output: bytes = b"",
) -> RankMetrics | None:
    """What is known of a rank's metrics; None where nothing is.

    The first source that has values is taken: `milkweed.report`, then event files and JSON lines that its
    processes write, then its output. A source without values, steps alone, is better than none.

    Args:
        pids: its processes, those that have ended too: they are in the names of event files.
        cwd: where files are looked for that none of the processes has open; empty: nowhere.
        since: its start, wall clock.
        output: what is to be read of its output, which may begin or end in the midst of a line.
    """
    steps: RankMetrics | None = None
    for found in _sources(run_directory, label, pids, cwd, since, output):
        if found is not None and found.names:
            return found
        steps = steps or found
    return steps


def _sources(
    run_directory: Path, label: str, pids: Sequence[int], cwd: str, since: float, output: bytes
) -> Iterator[RankMetrics | None]:
    reported = [read_whole_lines(path) for path in metric_files(run_directory, label)[:_MOST_FILES]]
    notes = [note for head, tail in reported for note in (find_note(head) or find_note(tail),) if note]
    cut = [_CUT] if any(tail for _, tail in reported) else []
    yield collect(
        "milkweed.report",
        heapq.merge(*(_in_time(parts) for parts in reported), key=lambda point: point.at or 0.0),
        "; ".join(dict.fromkeys((*notes, *cut))),
    )
    written = find.written_files(pids)
    paths = written or (find.changed_files(cwd, since, pids) if cwd else ())
    parsers: tuple[tuple[bool, _Parse], ...] = ((True, parse_events), (False, parse_json_lines))
    for events, parse in parsers:
        mine = [path for path in paths if find.is_event_file(path) == events]
        found = _best(mine[:_MOST_FILES], parse, cwd)
        shared = found is not None and not written and not (pids and find.names_process(found.source))
        yield None if found is None else replace(found, shared=shared)
    yield collect("printed lines", parse_printed(output[-_OUTPUT_TAIL:]))


def _in_time(parts: Iterable[bytes]) -> Iterator[MetricPoint]:
    return chain.from_iterable(map(parse_reported, parts))


def _best(paths: Sequence[str], parse: _Parse, cwd: str) -> RankMetrics | None:
    """The file with the most points: a program may write others, for its evaluation say."""
    best: RankMetrics | None = None
    for path in paths:
        head, tail = read_whole_lines(Path(path), records=parse is parse_events)
        name = os.path.relpath(path, cwd) if cwd and path.startswith(cwd.rstrip("/") + "/") else path
        found = collect(name, chain(parse(head), parse(tail)), _CUT if tail else "")
        if found is not None and (best is None or found.count > best.count):
            best = found
    return best


def read_whole_lines(path: Path, *, records: bool = False) -> tuple[bytes, bytes]:
    """Head and tail of a file, whole lines of both unless it holds `records`; of a small one all is head."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _HEAD + _TAIL:
                return file.read(_HEAD + _TAIL), b""
            head = file.read(_HEAD)
            file.seek(size - _TAIL)
            tail = file.read(_TAIL)
    except OSError:
        return b"", b""
    return (head, tail) if records else (head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :])
