"""The toolset `run`: commands on the ranks of a mesh, their outcome and their output."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from ..runtime.errors import InvalidArgument
from ..runtime.evidence.remains import fault_text
from ..runtime.patterns import compile_pattern
from ..runtime.records import RunRequest, RunView
from .arguments import MeshId, Ranks, RunId, Why
from .commands import check_env, check_folders, check_keep, check_launcher, check_script, split_command
from .homes import Homes
from .mending import Mender
from .outcome import describe_item, describe_run, tail_bytes
from .reading import Page, page_forward, page_tail
from .registry import Call, Text, tool
from .results import RunList, RunResult, bounded
from .searching import search_output
from .selection import CURSOR_MAX, format_cursor, parse_cursor, select_ranks
from .verdicts import name_ranks
from .words import clip, size_in_words

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = [
    "RUN_SECONDS_MAX",
    "WAIT_MAX_S",
    "FileOptions",
    "absolute",
    "cancel_run",
    "list_runs",
    "read_run_output",
    "run_on_mesh",
    "start_and_wait",
    "wait_for_run",
]

WAIT_MAX_S = 45.0
RUN_SECONDS_MAX = 7 * 24 * 3600
# What stays of a call's 45 s for reading the output and answering.
_ANSWER_S = 3.0
_LIST_MAX = 20
_MATCH_BYTES = 500
_TAIL_LINE_BYTES = 256
# A footer without its cursor.
_FOOTER_BYTES = 100
_NOTES_SHOWN = 3
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_MOST_FAULTS = 4
_FAULTS_S = 1.5


MeshRanks = Annotated[
    str | None,
    Field(description='ranks of the mesh, such as "0-3" or "hosts=0"; the run numbers its own from 0'),
]


class FileOptions(BaseModel):
    """What becomes of the files that ranks write."""

    model_config = ConfigDict(extra="forbid", strict=True)

    keep: list[str] = Field(
        default=[], description='globs below cwd of files that outlive the mesh: "checkpoints/**"'
    )
    scratch: list[str] = Field(
        default=[], description="folders of the workspace for many or large files: plain disk of each host"
    )


class RunOptions(FileOptions):
    discard_host_changes: bool = Field(
        default=False, description="first remove what hosts wrote to the workspace, but not scratch folders"
    )
    keep_going: bool = Field(default=False, description="let the other ranks go on when one has failed")
    own_device: bool = Field(
        default=False, description="each rank sees its GPU alone, as 0; default: all, chosen by LOCAL_RANK"
    )
    warm: bool = Field(
        default=True, description="fork Python from a process with torch imported, where one is ready"
    )


@tool("run", open_world=True)
async def run_on_mesh(
    call: Call,
    mesh: MeshId,
    command: Annotated[
        str | list[str] | None,
        Field(description="split like a shell does, run without one; python is the workspace's own"),
    ] = None,
    script: Annotated[
        str | None, Field(description="instead of command: text of a script, run by its #! line or else bash")
    ] = None,
    launcher: Annotated[
        Literal["spmd", "torchrun", "per_host", "single"],
        Field(
            description="spmd: a process a rank; torchrun: the same by a torchrun on each host, for its"
            " elastic variables and error files; per_host: a process a host; single: one process"
        ),
    ] = "spmd",
    ranks: MeshRanks = None,
    env: dict[str, str] | None = None,
    cwd: Annotated[str | None, Field(description="default: the workspace")] = None,
    timeout_s: Annotated[
        float | None,
        Field(gt=0, le=RUN_SECONDS_MAX, description="end the run after it"),
        Why("7 days at most"),
    ] = None,
    wait_s: Annotated[
        float,
        Field(ge=0, le=WAIT_MAX_S, description="how long to wait for the end"),
        Why("no call takes longer"),
    ] = 20.0,
    options: RunOptions | None = None,
) -> RunResult:
    """Starts a command or a script on ranks of a mesh and waits up to wait_s for its end; the run goes on
    after that. Answers the outcome: state, first failure with traceback, groups of ranks that failed alike,
    tail of the output. When a rank fails, the others are ended 5 s later, unless options.keep_going."""
    if (command is None) == (script is None):
        what = "needs a command or a script" if command is None else "takes a command or a script, not both"
        raise InvalidArgument("invalid_argument", f"run_on_mesh {what}", "Nothing was started.")
    argv = split_command(command) if command is not None else ()
    check_launcher(argv, launcher)
    environment = check_env(env or {})
    options = options or RunOptions()
    found = await call.meshes.get(mesh)
    directory = await absolute(found, cwd)
    request = RunRequest(
        argv=argv,
        launcher=launcher,
        script=None if script is None else check_script(script),
        ranks=ranks,
        env=environment,
        cwd=directory,
        timeout_s=timeout_s,
        keep_going=options.keep_going,
        warm=options.warm,
        own_device=options.own_device,
        keep=check_keep(options.keep, directory or (await found.view()).spec.workspace),
        scratch=check_folders(options.scratch),
        discard=options.discard_host_changes,
    )
    return await start_and_wait(call, found, request, wait_s)


async def start_and_wait(call: Call, mesh: Mesh, request: RunRequest, wait_s: float) -> RunResult:
    """Starts a run; its outcome at its end, or as it is after `wait_s`."""
    started = await mesh.start_run(request)
    await call.report(0, None, f"{started.run} is running")
    view = await mesh.wait_run(
        started.run, until="end", pattern=None, timeout_s=min(wait_s, WAIT_MAX_S - _ANSWER_S)
    )
    return await _outcome(mesh, view)


@tool("run", read_only=True)
async def wait_for_run(
    call: Call,
    run: RunId,
    until: Annotated[
        Literal["end", "output", "hang"],
        Field(description="output: anything new; hang: the end, or that no rank has moved for about 30 s"),
    ] = "end",
    pattern: Annotated[
        str | None,
        Field(description="wait until a line matches this regular expression, now or later; implies output"),
    ] = None,
    timeout_s: Annotated[float, Field(ge=0, le=WAIT_MAX_S), Why("no call takes longer; call again")] = 30.0,
) -> RunResult:
    """Waits for the end of a run or for new output, and answers its state then, also when the time is up."""
    if pattern is not None:
        compile_pattern(pattern)
    found = await call.meshes.find_run(run)
    await call.report(0, None, f"waiting for {run}")
    began = anyio.current_time()
    limit = min(timeout_s, WAIT_MAX_S - _ANSWER_S)
    view = await found.wait_run(
        run,
        until="output" if pattern is not None else "still" if until == "hang" else until,
        pattern=pattern,
        timeout_s=limit,
    )
    result = await _outcome(found, view)
    left_s = began + WAIT_MAX_S - _ANSWER_S - anyio.current_time()
    early = view.ended_at is None and anyio.current_time() - began < limit
    if pattern is not None:
        result.matched = early
        if early or view.ended_at is not None:
            with anyio.move_on_after(left_s):
                result.match = await _last_match(call, found, view, pattern)
                result.matched = early or bool(result.match)
    if view.ended_at is None and not early and (until == "output" or pattern is not None):
        result.next = f"Nothing came: diagnose_run(run={run!r}) tells whether it hangs, and why."
    return result


async def _last_match(call: Call, mesh: Mesh, view: RunView, pattern: str) -> str:
    """The last line that matches, of each rank that has one."""
    ranks = tuple(rank.rank for rank in view.ranks)
    page = await search_output(call, mesh, view.run, ranks, {}, pattern, tail=1, max_bytes=_MATCH_BYTES)
    return page.text


@tool("run", read_only=True)
async def list_runs(call: Call, mesh: MeshId) -> RunList:
    """Runs of a mesh, newest first, with their state."""
    found = await call.meshes.get(mesh)
    runs = sorted(await found.runs(), key=lambda view: view.created_at, reverse=True)
    now = time.time()
    shown = runs[:_LIST_MAX]
    return bounded(
        lambda share: RunList(
            mesh=found.id,
            runs=[describe_item(view, now, share) for view in shown],
            more=len(runs) - len(shown),
            next="" if shown else f"run_on_mesh(mesh={found.id!r}, command=...).",
        )
    )


@tool("run", read_only=True)
async def read_run_output(
    call: Call,
    run: RunId,
    ranks: Ranks = None,
    grep: Annotated[
        str | None, Field(description="only lines with this regular expression (RE2; (?i) for any case)")
    ] = None,
    tail: Annotated[int | None, Field(ge=1, le=10_000, description="last lines of each rank")] = None,
    cursor: Annotated[
        str | None, Field(description='read on from here; "start" is the beginning; default: the end')
    ] = None,
    max_bytes: Annotated[
        int, Field(ge=500, le=65_536), Why("more does not fit an answer: read on by cursor")
    ] = 8000,
) -> Text:
    """Output of a run's ranks (stdout and stderr), also while it runs and after the mesh is released. Lines
    that ranks share are shown once, with the ranks. Ends with a cursor to read on."""
    if grep is not None:
        compile_pattern(grep)
    found = await call.meshes.find_run(run)
    view = await found.run(run)
    chosen = select_ranks(ranks, view)
    offsets = _offsets(cursor, chosen, view)
    if offsets is not None:
        chosen = tuple(sorted(offsets))
    body_bytes = max(max_bytes - CURSOR_MAX - 200, max_bytes // 2)
    narrow = "read on by cursor, or choose ranks, grep or tail"
    if grep is not None:
        page = await search_output(call, found, run, chosen, offsets or {}, grep, tail, body_bytes)
        return Text(_with_footer(page, view, "no line matches", max_bytes))
    if offsets is not None:
        share = max(4096, 2 * body_bytes)
        slices = await found.read_output(run, ranks=chosen, offsets=offsets, tail_bytes=None, max_bytes=share)
        return Text(_with_footer(page_forward(slices, offsets, body_bytes), view, "nothing new", max_bytes))
    share = body_bytes if tail is None else min(256 * 1024, max(body_bytes, tail * _TAIL_LINE_BYTES))
    slices = await found.read_output(run, ranks=chosen, offsets=None, tail_bytes=share, max_bytes=share)
    page = page_tail(slices, body_bytes, narrow, lines=tail)
    return Text(_with_footer(page, view, "no output", max_bytes))


@tool("run", destructive=True, idempotent=True)
async def cancel_run(call: Call, run: RunId) -> RunResult:
    """Ends a run: every process of every rank, with its children. read_run_output still has its output."""
    found = await call.meshes.find_run(run)
    result = await _outcome(found, await found.cancel_run(run))
    result.output_tail = ""
    return result


async def _outcome(mesh: Mesh, view: RunView) -> RunResult:
    ranks = tuple(rank.rank for rank in view.ranks)
    each = tail_bytes(len(ranks))
    slices = await mesh.read_output(view.run, ranks=ranks, offsets=None, tail_bytes=each, max_bytes=each)
    at = await mesh.view()
    describe = partial(
        describe_run,
        view,
        slices,
        now=time.time(),
        lease_left_s=at.lease_left_s,
        workspace=at.spec.workspace,
        homes=Homes(at),
        mender=Mender(at),
    )
    if view.state != "failed":
        return describe()
    describe = partial(describe, faults=await _faults(mesh, view))
    return await anyio.to_thread.run_sync(describe)  # what helps is looked for in file systems


async def _faults(mesh: Mesh, view: RunView) -> dict[int, str]:
    """What the first ranks that a fault ended have left of their stacks; of none others."""
    ended = [rank.rank for rank in view.ranks if rank.exit is not None and rank.exit.signal in _FAULTS]
    if not ended:
        return {}
    found = await mesh.evidence(view.run, ranks=ended[:_MOST_FAULTS], timeout_s=_FAULTS_S)
    return {
        one.rank: fault_text(one.faults[0])
        for host in found
        for one in host.ranks
        if one.rank in ended and one.faults
    }


async def absolute(mesh: Mesh, cwd: str | None) -> str:
    """A working directory in full: a relative one begins at the workspace."""
    if not cwd or PurePosixPath(cwd).is_absolute():
        return cwd or ""
    return str(PurePosixPath((await mesh.view()).spec.workspace) / cwd)


def _offsets(cursor: str | None, chosen: tuple[int, ...], view: RunView) -> dict[int, int] | None:
    """Where to read on, of the chosen ranks alone; None without a cursor."""
    if cursor is None:
        return None
    if cursor.strip() == "start":
        return dict.fromkeys(chosen, 0)
    offsets = parse_cursor(cursor, (rank.rank for rank in view.ranks))
    return {rank: offset for rank, offset in offsets.items() if rank in chosen}


def _with_footer(page: Page, view: RunView, nothing: str, max_bytes: int) -> str:
    parts = [page.text or f"({nothing})"]
    if page.earlier:
        parts.insert(
            0, f'[{size_in_words(page.earlier)} before this; cursor="start" reads from the beginning]'
        )
    parts += [f"[{clip(note, 80)}]" for note in page.notes[: min(_NOTES_SHOWN, max_bytes // 500)]]
    if page.waiting:
        parts.append(f"[{clip(name_ranks(page.waiting), 60)}: on the next pages]")
    cursor = format_cursor(page.offsets)
    if sum(len(part.encode()) for part in parts) + len(cursor) + _FOOTER_BYTES > max_bytes:
        cursor = ""
    how = f'to read on: cursor="{cursor}"' if cursor else "to read on, choose fewer ranks"
    if view.ended_at is None:
        parts.append(f"[{view.run} is {view.state}; {how}]")
    elif page.more:
        parts.append(f"[{'the line goes on' if page.in_line else 'there is more'}; {how}]")
    else:
        parts.append(f"[end of output; {view.run} is {view.state}]")
    return "\n".join(parts)
