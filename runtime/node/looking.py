"""What a process's threads and tasks wait for, found from a thread that does not.

A task that awaits is on no thread's stack, and the stack of one that waits for an answer does not say whose.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ..records import CallWait, Frame, ThreadStack
from ..user_code import is_users
from .future import Future

__all__ = ["find_loops", "thread_waits", "user_tasks"]

_MOST_FRAMES = 64
_MOST_TASKS = 200
_RUNS_FOREVER = asyncio.BaseEventLoop.run_forever.__code__
_GETS = Future.get.__code__
_AWAITS = Future.__await__.__code__
# How coroutines, generators and async generators name their frame, and what it awaits.
_AWAITABLES = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))


@dataclass(frozen=True, slots=True)
class _Chain:
    """The frames of a task from its coroutine inwards, innermost first, and what the last one awaits."""

    frames: tuple[Frame, ...]
    waits: CallWait | None


def thread_waits(ident: int) -> CallWait | None:
    """The call whose answer a thread waits for, if it does."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - documented, for such uses
    while frame is not None:
        if frame.f_code is _GETS:
            return _asked(frame)
        frame = frame.f_back
    return None


def find_loops() -> dict[int, asyncio.AbstractEventLoop]:
    """The asyncio loops that run, by their thread."""
    found: dict[int, asyncio.AbstractEventLoop] = {}
    for ident, top in sys._current_frames().items():  # noqa: SLF001 - documented, for such uses
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code is _RUNS_FOREVER:
                found[ident] = frame.f_locals["self"]
                break
            frame = frame.f_back
    return found


def user_tasks(
    loop: asyncio.AbstractEventLoop, *, without: frozenset[Any] = frozenset()
) -> list[ThreadStack]:
    """The tasks of a loop that have a frame of the user's or await a call, the oldest first; at most 200.

    Args:
        without: tasks that are told of elsewhere.
    """
    tasks = [task for task in asyncio.all_tasks(loop) if task not in without]
    found = [stack for task in tasks if (stack := task_stack(task)) is not None]
    return sorted(found, key=lambda stack: _number(stack.thread))[:_MOST_TASKS]


def task_stack(task: asyncio.Task[Any]) -> ThreadStack | None:
    """Where a task awaits; None for one that runs now, which is on its thread's stack, and for our own."""
    coroutine: Any = task.get_coro()
    if coroutine is None or getattr(coroutine, "cr_running", False):
        return None
    chain = _chain(coroutine)
    if chain.waits is None and not any(is_users(frame.file) for frame in chain.frames):
        return None
    return ThreadStack(task.get_name(), chain.frames, waits=chain.waits)


def _chain(awaitable: Any) -> _Chain:
    frames: list[Frame] = []
    waits: CallWait | None = None
    for frame in _frames(awaitable):
        frames.append(Frame(frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno or 0))
        if frame.f_code is _AWAITS:
            waits = _asked(frame)
    return _Chain(tuple(frames[::-1]), waits)


def _frames(awaitable: Any) -> Iterator[FrameType]:
    for _ in range(_MOST_FRAMES):
        names = next((names for names in _AWAITABLES if hasattr(awaitable, names[0])), None)
        frame = None if names is None else getattr(awaitable, names[0])
        if names is None or frame is None:  # no coroutine, or one that has ended since
            return
        yield frame
        awaitable = getattr(awaitable, names[1])


def _asked(frame: FrameType) -> CallWait | None:
    future = frame.f_locals.get("self")
    return future.waits_for() if isinstance(future, Future) else None


def _number(name: str) -> tuple[int, str]:
    digits = name.rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else sys.maxsize, name)
