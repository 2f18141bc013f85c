"""Stacks of a process of the actor runtime as its user sees it: without what is ours, with its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...runtime.mesh import format_ranks
from ...runtime.records import CallWait, Frame, ProcessStacks, ThreadStack
from .frames import is_library

__all__ = ["as_user_sees", "name_procs", "proc_called", "shown_names", "with_names"]

_PROC = "/milkweed/runtime/proc/"
_RUNS_ENDPOINT = ("main_thread.py", "interruptible"), ("calls.py", "run"), ("calls.py", "run_async")
_MOST_CALLS = 3
_LOOP = "milkweed"
_RUNS_LOOP = ("_run_once", "run_forever")


def shown_names(processes: Sequence[ProcessStacks]) -> dict[str, str]:
    """How each mesh of procs is called: by its name, and with its token where two have the same."""
    full = {process.procs for process in processes if process.procs}
    count = Counter(_base(name) for name in full)
    return {name: _base(name) if count[_base(name)] == 1 else name for name in full}


def _base(name: str) -> str:
    return name.rpartition("-")[0] or name


def name_procs(procs: Sequence[str]) -> str:
    """`workers 0-6, stores 1` of procs as they are called."""
    ranks: dict[str, list[int]] = {}
    for proc in procs:
        mesh, _, rank = proc.rpartition("-")
        if mesh and rank.isdecimal():
            ranks.setdefault(mesh, []).append(int(rank))
        else:
            ranks.setdefault(proc, [])
    return ", ".join(f"{name} {format_ranks(of)}" if of else name for name, of in ranks.items())


def proc_called(proc: str, names: Mapping[str, str]) -> str:
    """`workers-6` of `workers-1f2a3c-6`."""
    mesh, _, rank = proc.rpartition("-")
    return f"{names.get(mesh, _base(mesh))}-{rank}" if mesh else proc


def with_names(process: ProcessStacks, names: Mapping[str, str]) -> ProcessStacks:
    """The process with the names that its mesh of procs, and those that it waits for, are called by."""

    def stack_called(stack: ThreadStack) -> ThreadStack:
        if stack.waits is None:
            return stack
        procs = tuple(proc_called(proc, names) for proc in stack.waits.procs)
        return replace(stack, waits=replace(stack.waits, procs=procs))

    threads = tuple(map(stack_called, process.threads))
    return replace(process, threads=threads, procs=names.get(process.procs, process.procs))


def as_user_sees(process: ProcessStacks) -> ProcessStacks:
    """The process with its own place as its main thread: a proc that has nothing to do has no frame there.

    The place is where the main thread is; where that waits for work, the loop, if an endpoint is busy on it;
    else a task that awaits. Other tasks and threads of the user's follow.
    """
    if not process.threads or process.child_of is not None:
        return process
    return _proc(process) if process.procs else _program(process)


def _proc(process: ProcessStacks) -> ProcessStacks:
    inside = process.inside
    main = next((one for one in process.threads if one.main), process.threads[-1])
    served = [_without_ours(call.stack) for call in inside.calls if call.stack is not None] if inside else []
    places = [
        replace(main, frames=_of_endpoint(main.frames), waits=inside.main if inside else None),
        *(replace(one, frames=_of_endpoint(one.frames)) for one in process.threads if one.thread == _LOOP),
        *served,
        *(task for task in (inside.tasks if inside else ()) if _is_users(task)),
        *(one for one in process.threads if one is not main and one.thread != _LOOP and _is_users(one)),
    ]
    first, *others = [place for place in places if place.frames] or [replace(main, frames=())]
    first = replace(first, main=True, owns_gil=first.owns_gil or main.owns_gil)
    return replace(process, threads=(first, *(replace(one, main=False) for one in others)))


def _program(process: ProcessStacks) -> ProcessStacks:
    inside = process.inside
    if inside is None:
        return process
    main = next((one for one in process.threads if one.main), process.threads[-1])
    others = [one for one in process.threads if one is not main and _is_users(one)]
    own = next((at for at, frame in enumerate(main.frames) if not is_library(frame.file)), 0)
    in_loop = any(frame.function.rpartition(".")[2] in _RUNS_LOOP for frame in main.frames[:own])
    tasks = [task for task in inside.tasks if _is_users(task)]
    if not tasks or not in_loop:
        return replace(process, threads=(replace(main, waits=inside.main), *tasks, *others))
    # What a gather awaits has tasks of its own, without a frame of the user's.
    gathered = [task.waits for task in inside.tasks if task.waits is not None and not _is_users(task)]
    waits = tasks[0].waits or _together(gathered)
    main = replace(main, frames=(*tasks[0].frames, *main.frames[own:]), waits=waits)
    return replace(process, threads=(main, *tasks[1:], *others))


def _together(waits: Sequence[CallWait]) -> CallWait | None:
    """Several calls that are awaited at once, as one."""
    calls = dict.fromkeys(one.call for one in waits)
    procs = dict.fromkeys(proc for one in waits for proc in one.procs)
    return CallWait(" and ".join(list(calls)[:_MOST_CALLS]), tuple(procs)) if calls else None


def _without_ours(stack: ThreadStack) -> ThreadStack:
    frames = list(stack.frames)
    while frames and _PROC in frames[-1].file:
        frames.pop()
    return replace(stack, frames=tuple(frames))


def _of_endpoint(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """What an endpoint is in; empty where none is running."""
    for at, frame in enumerate(frames):
        file, function = frame.file, frame.function.rpartition(".")[2]
        if _PROC in file and (file.rpartition("/")[2], function) in _RUNS_ENDPOINT:
            inner = frames[:at]
            while inner and _PROC in inner[-1].file:
                inner = inner[:-1]
            return tuple(inner)
    return ()


def _is_users(thread: ThreadStack) -> bool:
    return any(not is_library(frame.file) for frame in thread.frames)
