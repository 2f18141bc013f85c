"""Stacks of all ranks, grouped: which ranks are at one place, and which one is elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...runtime.mesh import format_ranks
from ...runtime.records import Frame, ProcessStacks, ServedNote, ThreadStack
from .actor_view import name_procs
from .folding import name_ranks
from .frames import is_library, is_native, place, without_host
from .waits import Wait, find_wait

__all__ = [
    "StackGroup",
    "group_stacks",
    "innermost_user",
    "main_thread",
    "name_members",
    "stack_key",
    "verdict",
]

_MAX_NAMED = 4
_STOPPED = ("T", "t")


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks whose main threads are at one place, or that could not be dumped for one reason (`error`).

    `example` stands for all; `children` are the other Python processes of these ranks. Where they are procs,
    `calls` says what they do for others.
    """

    ranks: tuple[int, ...]
    example: ProcessStacks
    wait: Wait
    children: tuple[ProcessStacks, ...] = ()
    calls: str = ""

    @property
    def name(self) -> str:
        """`ranks 0-2`, or `workers 0-2`."""
        return name_members(self.example.procs, self.ranks)

    @property
    def idle(self) -> bool:
        """Procs that have nothing to do."""
        return bool(self.example.procs) and not self.error and not self.stopped and not self.frames

    @property
    def error(self) -> str:
        return "" if self.example.threads else self.example.error or "no Python stack"

    @property
    def stopped(self) -> bool:
        return self.example.os_state in _STOPPED

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The main thread's Python frames, innermost first."""
        thread = main_thread(self.example)
        return tuple(frame for frame in thread.frames if not is_native(frame.file)) if thread else ()


def name_members(procs: str, ranks: Sequence[int]) -> str:
    """Ranks of a mesh of procs, or of the run where it is none."""
    return f"{procs} {format_ranks(ranks)}" if procs else name_ranks(ranks)


def main_thread(process: ProcessStacks) -> ThreadStack | None:
    """The main thread; where none is marked, the last one, which is the oldest."""
    return next((thread for thread in process.threads if thread.main), (process.threads or (None,))[-1])


def stack_key(process: ProcessStacks) -> tuple[object, ...]:
    """What two processes at one place have in common.

    User frames by function, file and line; library frames by function and file; native frames not at all,
    because they differ from sample to sample of one wait.
    """
    thread = main_thread(process)
    if thread is None:
        return ("error", re.sub(r"\d+", "#", process.error))
    return (
        process.os_state in _STOPPED,
        *(
            (_name(frame), without_host(frame.file), 0 if is_library(frame.file) else frame.line)
            for frame in thread.frames
            if not is_native(frame.file)
        ),
    )


def _name(frame: Frame) -> str:
    """The last part of a qualified name: dumps from inside the process do not know the rest."""
    return frame.function.rsplit(".", 1)[-1]


def group_stacks(processes: Sequence[ProcessStacks]) -> tuple[StackGroup, ...]:
    """Groups in the order in which they matter: odd ones and small ones first, those without a stack last.

    Every rank is in exactly one group: by its own process, or by a child where that one is missing.
    """
    chosen: dict[int, ProcessStacks] = {}
    for process in sorted(processes, key=lambda process: process.child_of is not None):
        chosen.setdefault(process.rank, process)
    grouped: dict[tuple[object, ...], list[ProcessStacks]] = {}
    for rank in sorted(chosen):
        grouped.setdefault(stack_key(chosen[rank]), []).append(chosen[rank])
    groups = [_group(members, chosen, processes) for members in grouped.values()]
    usual = _usual([group for group in groups if not group.error])
    return tuple(
        sorted(
            groups,
            key=lambda group: (
                bool(group.error),
                group in usual,
                not group.stopped,
                len(group.ranks),
                group.ranks,
            ),
        )
    )


def _group(
    members: Sequence[ProcessStacks], chosen: dict[int, ProcessStacks], processes: Sequence[ProcessStacks]
) -> StackGroup:
    ranks = tuple(member.rank for member in members)
    thread = main_thread(members[0])
    children = tuple(
        process for process in processes if process.rank in ranks and process is not chosen[process.rank]
    )
    calls = [member.inside.calls for member in members if member.inside is not None]
    return StackGroup(ranks, members[0], _wait(members, thread), children, _calls_in_words(calls))


def _wait(members: Sequence[ProcessStacks], thread: ThreadStack | None) -> Wait:
    """What they wait in; of calls of actors, those procs that any of them waits for."""
    if thread is None or thread.waits is None:
        return find_wait(thread.frames if thread else ())
    threads = [main for member in members if (main := main_thread(member)) is not None]
    awaited = [one.waits for one in threads if one.waits is not None]
    procs = dict.fromkeys(proc for waits in awaited for proc in waits.procs)
    calls = " or ".join(dict.fromkeys(waits.call for waits in awaited))
    of = name_procs(tuple(procs))
    return Wait("blocked", f"a call of {calls}{' on ' + of if of else ''}")


def _calls_in_words(calls: Sequence[Sequence[ServedNote]]) -> str:
    """`Worker.step for 12 s, 3 calls waiting` of the members of a group."""
    running = [call for member in calls for call in member if call.state == "main"]
    tasks = dict.fromkeys(call.call for member in calls for call in member if call.state == "task")
    waiting = sum(call.state == "waiting" for member in calls for call in member)
    words = [f"{name}{_for(running, name)}" for name in dict.fromkeys(call.call for call in running)]
    words += [name for name in tasks if name not in words]
    of_all = " in all" if len(calls) > 1 else ""
    words += [f"{waiting} call{'s' if waiting > 1 else ''} waiting{of_all}"] * bool(waiting)
    return ", ".join(words[:_MAX_NAMED])


def _for(running: Sequence[ServedNote], name: str) -> str:
    longest = max(call.for_s for call in running if call.call == name)
    return f" for {longest:.0f} s" if longest >= 1 else ""


def _is_waiting(group: StackGroup) -> bool:
    """Whether the ranks wait for other ranks."""
    return group.wait.kind == "collective" and not group.stopped and not group.error


def verdict(groups: Sequence[StackGroup], world_size: int, *, workspace: str = "") -> str:
    """One line: where the ranks wait, and which are elsewhere; it claims no more than the stacks show."""
    live = [group for group in groups if not group.error and not group.idle]
    idle = [group for group in groups if group.idle]
    dead = [group for group in groups if group.error]
    sentences = [_verdict_of_live(live, world_size, workspace)] if live else []
    sentences += [f"{group.name} {'are' if len(group.ranks) > 1 else 'is'} idle" for group in idle]
    sentences += [f"{group.name} not dumped: {group.error}" for group in dead[:_MAX_NAMED]]
    sentences += [f"{len(dead) - _MAX_NAMED} more groups not dumped"] * (len(dead) > _MAX_NAMED)
    known = {rank for group in groups for rank in group.ranks}
    missing = [rank for rank in range(world_size) if rank not in known]
    if missing:
        sentences.append(f"{name_ranks(missing)} without a process here: ended")
    return "; ".join(sentences) or "no process to dump"


def _verdict_of_live(live: Sequence[StackGroup], world_size: int, workspace: str) -> str:
    if len(live) == 1:
        (group,) = live
        everyone = len(group.ranks) == world_size
        if len(group.ranks) == 1:
            who, verb = group.name, "is"
        else:
            all_of = f"all {world_size} {group.example.procs or 'ranks'}"
            who, verb = all_of if everyone else group.name, "are"
        note = ", so none is odd by its Python stack" if len(group.ranks) > 1 and _is_waiting(group) else ""
        return f"{who} {verb} {_where(group, workspace, inside=True)}{note}"
    places = {_where(group, workspace, inside=True) for group in live}
    if len(places) == 1:
        ranks = [rank for group in live for rank in group.ranks]
        who = name_members(live[0].example.procs, ranks)
        return f"{who} are {places.pop()}, each with other frames further in"
    usual = _usual(live)
    if not usual:
        return f"{live[0].example.procs or 'the ranks'} disagree: {_list(live, workspace)}"
    odd = [group for group in live if group not in usual]
    waiting = "; ".join(_usual_words(group, workspace) for group in usual)
    return f"{waiting}; {_list(odd, workspace, elsewhere=True)}"


def _usual(live: Sequence[StackGroup]) -> list[StackGroup]:
    """The groups that the others are measured against; empty when counts and waits do not tell."""
    running = [group for group in live if not group.stopped]
    most = max((len(group.ranks) for group in running), default=0)
    waiting = [group for group in running if _is_waiting(group)]
    candidates = waiting or running
    if waiting:
        candidates += [g for g in running if g.wait.kind == "backward" and len(g.ranks) == most]
    largest = max((len(group.ranks) for group in candidates), default=0)
    first = [group for group in candidates if len(group.ranks) == largest]
    if len(first) == 1:
        return first
    # Equal counts: they can stand together only against ranks that wait for nobody.
    return first if len(candidates) == len(first) < len(live) and len(first) <= 2 else []


def _usual_words(group: StackGroup, workspace: str) -> str:
    many = len(group.ranks) > 1
    if group.wait.what and group.wait.kind in ("collective", "blocked"):
        return f"{group.name} wait{'' if many else 's'} {_where(group, workspace, inside=True)}"
    return f"{group.name} {'are' if many else 'is'} {_where(group, workspace, inside=True)}"


def _list(groups: Sequence[StackGroup], workspace: str, *, elsewhere: bool = False) -> str:
    named = [
        f"{group.name}"
        f"{' ' + ('are' if len(group.ranks) > 1 else 'is') + ' elsewhere:' if elsewhere else ' in'}"
        f" {_where(group, workspace)}"
        for group in groups[:_MAX_NAMED]
    ]
    rest = groups[_MAX_NAMED:]
    if rest:
        ranks = [rank for group in rest for rank in group.ranks]
        named.append(f"{name_members(rest[0].example.procs, ranks)} at {len(rest)} other places")
    return "; ".join(named)


def _where(group: StackGroup, workspace: str, *, inside: bool = False) -> str:
    """`all_reduce (train.py:41 train)`, with what else is to be known of the process."""
    frame = innermost_user(group.frames) or (group.frames[0] if group.frames else None)
    at = place(frame, workspace) if frame else "no Python frame"
    where = f"{group.wait.what} ({at})" if group.wait.what else at
    preposition = ("in " if group.wait.what else "at ") if inside or group.stopped else ""
    return f"{'stopped by a signal ' if group.stopped else ''}{preposition}{where}{_gil(group, workspace)}"


def _gil(group: StackGroup, workspace: str) -> str:
    main = main_thread(group.example)
    for thread in group.example.threads:
        if thread.owns_gil:
            frame = innermost_user(thread.frames)
            if thread is main:
                return ", holding the GIL"
            return (
                f", the GIL held by thread {thread.thread}{f' ({place(frame, workspace)})' if frame else ''}"
            )
    return ""


def innermost_user(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of the user's own code."""
    return next((frame for frame in frames if not is_library(frame.file)), None)
