"""Which processes of a rank are Python and worth a dump, read from /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..agent import ptree

__all__ = ["Target", "find_targets"]

_MAX_CHILDREN = 16
_MAX_COMMAND = 200
# Helpers that only wait for messages; a rank has one each, or (compile workers) one for each core.
_HELPERS = {
    "resource tracker": re.compile(r"multiprocessing\.resource_tracker|semaphore_tracker"),
    "fork server": re.compile(r"multiprocessing\.forkserver"),
    "compile worker": re.compile(r"torch/_inductor/compile_worker"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """One process to dump; `child_of` is the pid of its rank's own process, None for that one."""

    rank: int
    process: ptree.Process
    child_of: int | None = None
    command: str = ""
    note: str = ""


def find_targets(ranks: Sequence[tuple[int, int]], proc: Path = Path("/proc")) -> tuple[Target, ...]:
    """The ranks (number, pid) and their Python descendants.

    Where a rank's process is not Python (a shell script), its nearest Python descendant stands for it.
    """
    table = ptree.snapshot(str(proc))
    rank_pids = {pid for _, pid in ranks}
    found: list[Target] = []
    for rank, pid in ranks:
        found += _targets_of(rank, pid, rank_pids - {pid}, table, proc)
    return tuple(found)


def _targets_of(
    rank: int, pid: int, others: set[int], table: Mapping[int, ptree.Process], proc: Path
) -> list[Target]:
    root = table.get(pid)
    if root is None:
        return [Target(rank, ptree.Process(pid, 0, 0, 0, "X"))]
    below = ptree.descendants(table, [pid]) - others - ptree.descendants(table, others)
    below = {child for child in below if table[child].alive}
    python = sorted(
        (child for child in below if _is_python(child, proc)), key=lambda c: (_depth(c, pid, table), c)
    )
    commands = {child: _command(child, proc) for child in (pid, *python)}
    skipped = {child: helper for child in python if (helper := _helper(commands[child]))}
    worth = [child for child in python if child not in skipped]
    notes = [
        f"{list(skipped.values()).count(helper)} {helper} processes not dumped"
        for helper in set(skipped.values())
    ]
    main = pid
    if worth and not _is_python(pid, proc):
        main = worth.pop(0)
        notes.insert(0, f"process {pid} of this rank is not Python ({commands[pid][:60]}); this is its child")
    if len(worth) > _MAX_CHILDREN:
        notes.append(f"{len(worth) - _MAX_CHILDREN} more Python children not dumped")
    return [
        Target(rank, table[main], None, commands[main], "; ".join(notes)),
        *(Target(rank, table[child], main, commands[child]) for child in worth[:_MAX_CHILDREN]),
    ]


def _depth(pid: int, root: int, table: Mapping[int, ptree.Process]) -> int:
    depth = 0
    while pid != root and pid in table and depth < len(table):
        pid = table[pid].parent
        depth += 1
    return depth


def _is_python(pid: int, proc: Path) -> bool:
    """By the name of its executable, or a libpython in its memory."""
    try:
        if os.path.basename(os.readlink(proc / str(pid) / "exe")).startswith(("python", "pypy")):
            return True
        with (proc / str(pid) / "maps").open() as maps:
            return any("libpython" in line for line in maps)
    except OSError:
        # Of a process that may not be read only its command can tell.
        words = _command(pid, proc).split()
        return bool(words) and os.path.basename(words[0]).startswith("python")


def _command(pid: int, proc: Path) -> str:
    try:
        data = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return data.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:_MAX_COMMAND]


def _helper(command: str) -> str:
    return next((name for name, pattern in _HELPERS.items() if pattern.search(command)), "")
