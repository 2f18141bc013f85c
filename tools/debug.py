"""The toolset `debug`: where the ranks of a run are, which one is elsewhere, and where their time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import anyio
import anyio.to_thread
from pydantic import Field

from ..runtime.errors import Conflict, InvalidArgument
from ..runtime.profiling import ProfileRequest
from ..runtime.records import RunView
from .arguments import Ranks
from .diagnosis import DiagnosisResult, describe
from .homes import Homes
from .looking import look_at, source_reader
from .profiling import profile_ranks
from .registry import Call, Text, tool
from .selection import select_ranks
from .targets import find_run, no_run
from .verdicts.causes import diagnose
from .verdicts.run_stacks import render_run
from .verdicts.stack_report import SourceLine

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["diagnose_run", "profile_run", "stack_dump"]

_DUMP_S = 20.0
_MANY_RANKS = 8
_MOST_TRACED = 8


@tool("debug", read_only=True)
async def stack_dump(
    call: Call,
    target: Annotated[str, Field(description="run id; or a mesh, for its newest run that is running")],
    ranks: Ranks = None,
    native: Annotated[bool, Field(description="C and C++ frames too")] = False,
    locals: Annotated[bool, Field(description="local variables too")] = False,  # noqa: A002
) -> Text:
    """Python stacks of all ranks at once, grouped by where they are, with a verdict in the first line: where
    they wait and which rank is elsewhere. Why a run makes no progress diagnose_run tells. Of a controller
    (unless ranks are named) the procs that it spawned too. Ranks are only read, never stopped for good."""
    mesh, view = await _find_running(call, target)
    chosen = select_ranks(ranks, view)
    await call.report(0, None, f"dumping {len(chosen)} ranks of {view.run}")
    asked = None if ranks is None else chosen
    processes = await mesh.stacks(view.run, ranks=asked, native=native, locals=locals, timeout_s=_DUMP_S)
    at = await mesh.view()
    workspace, homes = at.spec.workspace, Homes(at)
    room = 6000 if native or locals else 1800 if len(processes) > _MANY_RANKS else 1400
    report = render_run(
        tuple(map(homes.stacks, processes)),
        world_size=len(view.ranks) if len(chosen) == len(view.ranks) else None,
        max_bytes=room,
        source_line=_source_lines(workspace),
        workspace=workspace,
    )
    return Text(f"{view.run}: {report}")


@tool("debug", read_only=True)
async def diagnose_run(
    call: Call,
    run: Annotated[str, Field(description="run id; or a mesh, for its newest run")],
) -> DiagnosisResult:
    """Why a run failed, hangs or is slow, from all ranks at once: the likeliest cause with its ranks, the
    evidence, and the next step. Of one that runs too; it is only looked at."""
    mesh, view = await find_run(call, run)
    if view is None:
        raise no_run(mesh)
    await call.report(0, None, f"looking at {len(view.ranks)} ranks of {view.run}")
    case = await look_at(mesh, view, await mesh.view())
    return describe(case, await anyio.to_thread.run_sync(diagnose, case))


@tool("debug", read_only=True)
async def profile_run(
    call: Call,
    run: Annotated[str, Field(description="run id; or a mesh, for its newest run that is running")],
    ranks: Ranks = None,
    seconds: Annotated[float, Field(ge=1, le=30)] = 5,
    native: Annotated[bool, Field(description="C and C++ frames too")] = False,
    torch: Annotated[
        bool, Field(description="torch's operations too, of ranks with a process group")
    ] = False,
) -> Text:
    """Where the CPU time of ranks goes: sampled for some seconds on all hosts at once, the program as it is.
    Hot functions and lines of each group of ranks, which ranks differ from the others, and files to open: a
    flame graph (SVG), speedscope JSON. For a run that is slow; diagnose_run for one that hangs."""
    mesh, view = await _find_running(call, run)
    chosen = select_ranks(ranks, view)
    if torch and len(chosen) > _MOST_TRACED:
        raise InvalidArgument(
            "invalid_argument",
            f"torch=true is for at most {_MOST_TRACED} ranks at once, got {len(chosen)}",
            'Name some, such as ranks="0-1".',
        )
    await call.report(0, None, f"sampling {len(chosen)} ranks of {view.run}")
    request = ProfileRequest(seconds=seconds, native=native, torch=torch)
    lines = _source_lines((await mesh.view()).spec.workspace)
    return Text(await profile_ranks(mesh, view.run, chosen, request, lines))


async def _find_running(call: Call, target: str) -> tuple[Mesh, RunView]:
    mesh, view = await find_run(call, target)
    if view is not None and view.ended_at is None:
        return mesh, view
    if view is not None and target.startswith("run-"):
        raise Conflict(
            "run_ended",
            f"{view.run} is {view.state}: there is no process left to look at",
            f"diagnose_run(run={view.run!r}) tells why it ended, read_run_output what it wrote.",
        )
    raise Conflict(
        "run_ended",
        f"no run is running on {mesh.id}",
        f"list_runs(mesh={mesh.id!r}) shows those that ended.",
    )


def _source_lines(workspace: str) -> SourceLine:
    """Lines of the workspace's own files."""
    read = source_reader(workspace)

    def line(file: str, number: int) -> str | None:
        text = read(file)
        known = text.splitlines() if text is not None else []
        return known[number - 1].strip() if 0 < number <= len(known) else None

    return line
