"""All stacks of a run as one report: its ranks, and each mesh of procs that they spawned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from ...runtime.records import ProcessStacks
from .actor_view import as_user_sees, name_procs, proc_called, shown_names, with_names
from .deadlocks import Link, find_deadlock
from .stack_report import SourceLine, render
from .stacks import group_stacks

__all__ = ["render_run"]


def render_run(
    processes: Sequence[ProcessStacks],
    *,
    world_size: int | None = None,
    max_bytes: int = 1400,
    source_line: SourceLine | None = None,
    workspace: str = "",
) -> str:
    """As `render`; what is ours in a process with actors is left out, and a circle of waiting calls said."""
    names = shown_names(processes)
    seen = sorted((with_names(as_user_sees(one), names) for one in processes), key=lambda one: one.procs)
    by_mesh = {mesh: group_stacks(list(of)) for mesh, of in groupby(seen, key=lambda one: one.procs)}
    return render(
        by_mesh.pop("", ()),
        procs=tuple(by_mesh.values()),
        finding=_deadlock_in_words(find_deadlock(processes), names),
        world_size=world_size,
        max_bytes=max_bytes,
        source_line=source_line,
        workspace=workspace,
    )


def _deadlock_in_words(circle: Sequence[Link], names: Mapping[str, str]) -> str:
    if not circle:
        return ""
    procs = [name_procs([proc_called(one.proc, names)]) for one in circle]
    links = [
        f"{proc} in {one.runs} waits for {one.waits_for} on {other}"
        for one, proc, other in zip(circle, procs, [*procs[1:], procs[0]], strict=True)
    ]
    step = f"mend: make {circle[0].waits_for.rpartition('.')[2]} async, or wait for it elsewhere"
    return f"deadlock: {', '.join(links)} ({step})"
