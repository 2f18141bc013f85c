"""Actors that wait for each other in a circle: found from what they await and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.records import CallWait, ProcessStacks

__all__ = ["Link", "find_deadlock"]


@dataclass(frozen=True, slots=True)
class Link:
    """`proc` runs `runs`, and in it waits for `waits_for`, which is a call of the next one in the circle."""

    proc: str
    runs: str
    waits_for: str


@dataclass(frozen=True, slots=True)
class _Activity:
    """What a proc's main thread or one of its tasks is in, and the call that it awaits."""

    proc: str
    runs: str
    waits: CallWait


def find_deadlock(processes: Sequence[ProcessStacks]) -> tuple[Link, ...]:
    """The first circle of calls none of which can go on; empty where there is none.

    A call that has not begun waits for the main thread of its proc; one that runs as a task, for what that
    awaits. Each link was seen by the proc itself; the moments differ, but what waits for a main thread can
    only begin when the endpoint that runs there has ended.
    """
    by_proc = {_id(process): process for process in processes if process.procs and process.inside}
    done: set[_Activity] = set()
    for proc, process in by_proc.items():
        start = _main(proc, process)
        if start is not None and (circle := _follow(start, by_proc, (), done)):
            return circle
    return ()


def _id(process: ProcessStacks) -> str:
    return f"{process.procs}-{process.rank}"


def _main(proc: str, process: ProcessStacks) -> _Activity | None:
    inside = process.inside
    if inside is None or inside.main is None:
        return None
    running = next((call for call in inside.calls if call.state == "main"), None)
    return None if running is None else _Activity(proc, running.call, inside.main)


def _follow(
    activity: _Activity,
    by_proc: Mapping[str, ProcessStacks],
    path: tuple[tuple[_Activity, str], ...],
    done: set[_Activity],
) -> tuple[Link, ...]:
    seen = [one for one, _ in path]
    if activity in seen:
        return tuple(Link(one.proc, one.runs, call) for one, call in path[seen.index(activity) :])
    if activity in done:
        return ()
    for following, call in _next(activity, by_proc):
        if found := _follow(following, by_proc, (*path, (activity, call)), done):
            return found
    done.add(activity)
    return ()


def _next(activity: _Activity, by_proc: Mapping[str, ProcessStacks]) -> Iterator[tuple[_Activity, str]]:
    """What must go on before this can, and the call by which it waits for that."""
    caller = by_proc[activity.proc].inside
    assert caller is not None
    endpoint = activity.waits.call.rpartition(".")[2]
    for proc in activity.waits.procs:
        process = by_proc.get(proc)
        if process is None or process.inside is None:
            continue
        for call in process.inside.calls:
            if call.sender != caller.node or call.call.rpartition(".")[2] != endpoint:
                continue
            if call.state == "waiting":
                main = _main(proc, process)
                if main is not None:
                    yield main, call.call
            elif call.state == "main" and process.inside.main is not None:
                yield _Activity(proc, call.call, process.inside.main), call.call
            elif call.stack is not None and call.stack.waits is not None:
                yield _Activity(proc, call.call, call.stack.waits), call.call
