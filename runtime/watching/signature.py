"""What two looks at a process have in common where it stands still: the place of its main thread. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..records import ProcessStacks, ThreadStack

__all__ = ["signatures", "trimmed"]

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3[\d.]*/|^<(?!string|stdin|ipython)|^/usr/lib/"
    r"|/milkweed/runtime/"
)
_NATIVE = re.compile(r"\.so(?:\.[\d.]+)?$|^\[|^$|\.(?:cpp|cc|c|h|hpp)$")
# Whose main thread is in one of these may wait for its other threads, which do the work.
_WAITS_FOR_THREADS = re.compile(r"/(?:threading|queue|selectors|concurrent/futures/\w+|asyncio/\w+)\.py$")
_INNERMOST = 4
_FRAMES = 200
_THREADS = 64


def signatures(processes: Sequence[ProcessStacks]) -> dict[int, str | None]:
    """Of each rank, from all its processes; None where one could not be dumped, or none is Python."""
    by_rank: dict[int, list[ProcessStacks]] = {}
    for process in processes:
        by_rank.setdefault(process.rank, []).append(process)
    return {rank: _signature(mine) for rank, mine in by_rank.items()}


def _signature(processes: Iterable[ProcessStacks]) -> str | None:
    places: list[str] = []
    for process in sorted(processes, key=lambda one: (one.child_of is not None, one.pid)):
        if not process.threads:
            return None
        places.append(f"{process.pid} {process.os_state in ('T', 't')}")
        places += _places(process)
    return f"{hash(tuple(places)):x}"  # it is compared in this process alone


def _places(process: ProcessStacks) -> Iterable[str]:
    main = next((thread for thread in process.threads if thread.main), process.threads[-1])
    yield from _frames(main)
    inner = [frame.file for frame in main.frames if not _NATIVE.search(frame.file)][:_INNERMOST]
    if any(map(_WAITS_FOR_THREADS.search, inner)):
        others = [thread for thread in process.threads if thread is not main and _is_users(thread)]
        for places in sorted(tuple(_frames(thread)) for thread in others):
            yield "thread"
            yield from places


def _is_users(thread: ThreadStack) -> bool:
    return any(not _LIBRARY.search(frame.file) and not _NATIVE.search(frame.file) for frame in thread.frames)


def _frames(thread: ThreadStack) -> Iterable[str]:
    """User frames by function, file and line, library frames by function and file; no native ones."""
    for frame in thread.frames:
        if not _NATIVE.search(frame.file):
            name = frame.function.rsplit(".", 1)[-1]
            line = 0 if _LIBRARY.search(frame.file) else frame.line
            yield f"{name} {frame.file} {line}"


def trimmed(processes: Iterable[ProcessStacks]) -> tuple[ProcessStacks, ...]:
    """The stacks as they are kept: of very deep ones the two ends, of many threads the first."""
    return tuple(
        replace(process, threads=tuple(_short(thread) for thread in process.threads[:_THREADS]))
        for process in processes
    )


def _short(thread: ThreadStack) -> ThreadStack:
    if len(thread.frames) <= _FRAMES:
        return thread
    half = _FRAMES // 2
    return replace(thread, frames=(*thread.frames[:half], *thread.frames[-half:]))
