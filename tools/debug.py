"""The toolset `debug`: where the ranks of a run are, and which one is elsewhere."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ..runtime.errors import Conflict, InvalidArgument
from ..runtime.records import RunView
from .arguments import Ranks
from .registry import Call, Text, tool
from .selection import select_ranks
from .verdicts.run_stacks import render_run
from .verdicts.stack_report import SourceLine

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["stack_dump"]

_DUMP_S = 20.0
_MANY_RANKS = 8
_RUNS_NAMED = 3
_SOURCE_MAX_BYTES = 2 * 1024 * 1024


@tool("debug", read_only=True)
async def stack_dump(
    call: Call,
    target: Annotated[str, Field(description="run id; or a mesh, for its newest run that is running")],
    ranks: Ranks = None,
    native: Annotated[bool, Field(description="C and C++ frames too")] = False,
    locals: Annotated[bool, Field(description="local variables too")] = False,  # noqa: A002
) -> Text:
    """Python stacks of all ranks at once, grouped by where they are, with a verdict in the first line: where
    they wait and which rank is elsewhere. The way to understand a run that makes no progress. Of a controller
    (unless ranks are named) the procs that it spawned too. Ranks are only read, never stopped for good."""
    mesh, view = await _find_running(call, target)
    chosen = select_ranks(ranks, view)
    await call.report(0, None, f"dumping {len(chosen)} ranks of {view.run}")
    asked = None if ranks is None else chosen
    processes = await mesh.stacks(view.run, ranks=asked, native=native, locals=locals, timeout_s=_DUMP_S)
    workspace = (await mesh.view()).spec.workspace
    room = 6000 if native or locals else 1800 if len(processes) > _MANY_RANKS else 1400
    report = render_run(
        processes,
        world_size=len(view.ranks) if len(chosen) == len(view.ranks) else None,
        max_bytes=room,
        source_line=_source_reader(workspace),
        workspace=workspace,
    )
    return Text(f"{view.run}: {report}")


async def _find_running(call: Call, target: str) -> tuple[Mesh, RunView]:
    if target.startswith("run-"):
        mesh = await call.meshes.find_run(target)
        view = await mesh.run(target)
        if view.ended_at is not None:
            raise Conflict(
                "run_ended",
                f"{view.run} is {view.state}: there is no process left to dump",
                f"read_run_output(run={view.run!r}) tells what it wrote.",
            )
        return mesh, view
    if target.startswith("job-"):
        raise await _is_a_job(call, target)
    mesh = await call.meshes.get(target)
    running = [view for view in await mesh.runs() if view.ended_at is None]
    if not running:
        raise Conflict(
            "run_ended",
            f"no run is running on {mesh.id}",
            f"list_runs(mesh={mesh.id!r}) shows those that ended.",
        )
    return mesh, max(running, key=lambda view: view.created_at)


async def _is_a_job(call: Call, job: str) -> InvalidArgument:
    status = await (await call.meshes.find_job(job)).job(job)
    running = [one for one in status.view.replicas if one.state == "running" and one.run]
    restarted_first = sorted(running, key=lambda one: (-one.attempt, one.replica))
    named = ", ".join(f"{one.run!r} (replica {one.replica})" for one in restarted_first[:_RUNS_NAMED])
    step = f"Name one: {named}." if named else f"None runs: replica_status(job={job!r})."
    return InvalidArgument(
        "invalid_argument", f"{job} is a job; each attempt of its replicas is a run of its own", step
    )


def _source_reader(workspace: str) -> SourceLine:
    """Lines of the workspace's own files, as they are now; each file is read once."""
    root = Path(workspace)

    @lru_cache(maxsize=64)
    def lines(file: str) -> tuple[str, ...]:
        path = root / file
        try:
            if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > _SOURCE_MAX_BYTES:
                return ()
            return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())
        except OSError:
            return ()

    def line(file: str, number: int) -> str | None:
        known = lines(file)
        return known[number - 1].strip() if 0 < number <= len(known) else None

    return line
