"""Which processes belong to what: snapshots of /proc, and pure walks over them.

A process is named by its pid and its start time (clock ticks since boot): a pid alone may be somebody else's
a moment later.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

__all__ = [
    "Process",
    "Tree",
    "carries",
    "descendants",
    "family",
    "is_sampled",
    "members",
    "read_environ",
    "read_process",
    "send_signal",
    "snapshot",
]

Environ = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table. `state` is the kernel's letter, that of the main thread."""

    pid: int
    parent: int
    session: int
    start_time: int
    state: str = "S"
    threads: int = 1

    @property
    def alive(self) -> bool:
        """A zombie is dead, unless only its main thread has ended."""
        return self.state not in ("Z", "X") or self.threads > 1


@dataclass(frozen=True, slots=True)
class Tree:
    """What a process left in the world: its descendants, its session, and whatever carries its marks.

    `start_time` makes `pid` mean one process for ever; None: the caller knows that the pid is still its own.
    Without `marks` only the descendants and the session count.
    """

    pid: int
    start_time: int | None = None
    marks: Mapping[str, str] = field(default_factory=dict)


def snapshot(proc: str = "/proc") -> dict[int, Process]:
    """All processes, by pid. Not one instant: the table changes while it is read."""
    table = {}
    for name in os.listdir(proc):
        if name.isdecimal() and (found := read_process(int(name), proc)):
            table[found.pid] = found
    return table


def family(root: int, proc: str = "/proc") -> dict[int, Process]:
    """A process and all below it, by pid: as `snapshot`, at a cost that other processes do not add to.

    It may miss one whose sibling ends at that moment. Where the kernel lists no children, it is a snapshot.
    """
    table: dict[int, Process] = {}
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid not in table and (found := read_process(pid, proc)):
            table[pid] = found
            children = _children_of(pid, proc)
            if children is None:
                return snapshot(proc)
            todo += children
    return table


def _children_of(pid: int, proc: str) -> list[int] | None:
    """None where the kernel does not tell; none of a process that has ended."""
    children: list[int] = []
    try:
        threads = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        try:
            with open(f"{proc}/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
        except OSError:
            if os.path.exists(f"{proc}/{pid}/task/{thread}/stat"):
                return None
    return children


def read_process(pid: int, proc: str = "/proc") -> Process | None:
    """One process, or None when there is none with that pid."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except (
        FileNotFoundError,
        ProcessLookupError,
        PermissionError,
    ):  # any other fault must not pass for an end
        return None
    # The command, second and in parentheses, may itself hold blanks and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode(), int(fields[17]))


def read_environ(pid: int, proc: str = "/proc") -> dict[str, str]:
    """The environment a process was started with; empty when it may not be read or was overwritten."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            text = file.read()
    except OSError:
        return {}
    pairs = (os.fsdecode(item).partition("=") for item in text.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


def descendants(table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Pids below `roots`, without the roots themselves."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    start = set(roots)
    found: set[int] = set()
    todo = list(start)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found and pid not in start:
                found.add(pid)
                todo.append(pid)
    return found


def members(
    table: Mapping[int, Process],
    owner: int,
    trees: Iterable[Tree],
    environ: Callable[[int], Environ] = read_environ,
) -> dict[int, Process]:
    """The living processes of `trees`, all of them below `owner`: nothing else is ever a member.

    `owner` is a subreaper, so that whatever its descendants start stays below it, daemons included. A process
    in a tree's session whose marks name another tree is no member: a session id is a pid, and may come again.
    """
    ours = {pid for pid in descendants(table, [owner]) if table[pid].alive}
    marks_of: dict[int, Environ] = {}

    def marks(pid: int) -> Environ:
        if pid not in marks_of:
            marks_of[pid] = environ(pid)
        return marks_of[pid]

    found: set[int] = set()
    for tree in trees:
        root = table.get(tree.pid)
        same = root is not None and tree.start_time in (None, root.start_time)
        if same:
            found |= {tree.pid, *descendants(table, [tree.pid])} & ours
        # While a session has members its id is no new pid: another process there means another session.
        session = tree.pid if same or root is None else None
        for pid in ours - found:
            in_session = table[pid].session == session and not contradicts(marks(pid), tree.marks)
            if in_session or (tree.marks and carries(marks(pid), tree.marks)):
                found.add(pid)
    return {pid: table[pid] for pid in found}


def carries(environ: Environ, marks: Mapping[str, str]) -> bool:
    """Whether an environment has all the marks."""
    return all(environ.get(name) == value for name, value in marks.items())


def contradicts(environ: Environ, marks: Mapping[str, str]) -> bool:
    """Whether an environment has a mark with another value; one without marks contradicts nothing."""
    return any(environ.get(name, value) != value for name, value in marks.items())


def send_signal(process: Process, number: int) -> bool:
    """Signals exactly this process; False when it is gone, or not ours to signal."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The descriptor holds the pid, so a right start time now was right when it was opened.
        found = read_process(process.pid)
        if found is None or found.start_time != process.start_time or not found.alive:
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def is_sampled(status: str) -> bool:
    """Whether py-spy, which holds a process for moments again and again, does so by this text of its
    `/proc/PID/status`."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    tracer = fields.get("TracerPid", "0").strip()
    if fields.get("State", "").strip()[:1] not in ("T", "t") or tracer == "0":
        return False
    try:
        with open(f"/proc/{tracer}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read().strip() == "py-spy"
    except OSError:
        return False
