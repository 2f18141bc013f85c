"""Looking at a run for a diagnosis: its hosts' evidence, twice where it runs, and what its ranks wrote."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ..runtime.errors import MilkweedError
from ..runtime.evidence import HostEvidence, RankEvidence
from ..runtime.records import Exit, Frame, MeshView, OutputSlice, RankView, RunView
from .homes import Homes
from .mending import Mender
from .outcome import tail_bytes
from .reading import text_of
from .verdicts.causes import Look, RankCase, RunCase
from .verdicts.frames import is_native
from .verdicts.tracebacks import PythonFailure, parse_failure

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["look_at", "source_reader"]

_EVIDENCE_S = 5.0
_AGAIN_S = 2.5
# Between two looks: shorter, and a step of a healthy run may lie outside.
_MOMENT_S = 1.0
_MOST_AGAIN = 16
_MOST_NATIVE = 2
_EVENTS = 200
_NOT_RAISED = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGKILL)
_RENDEZVOUS = "torch/distributed/rendezvous.py"
_SOURCE_MAX_BYTES = 2 * 1024 * 1024


def source_reader(workspace: str) -> Callable[[str], str | None]:
    """Texts of the workspace's own files, as they are now; each file is read once."""
    root = Path(workspace)

    @lru_cache(maxsize=64)
    def read(file: str) -> str | None:
        path = root / file
        try:
            if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > _SOURCE_MAX_BYTES:
                return None
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    return read


async def look_at(mesh: Mesh, view: RunView, at: MeshView) -> RunCase:
    """Everything that rules need. A run that lives is looked at twice, a moment apart."""
    started = anyio.current_time()
    first = await mesh.evidence(view.run, timeout_s=_EVIDENCE_S)
    answering = {host.host for host in first if not host.error or view.ended_at is not None}
    slices = await _output(mesh, view, answering)
    second: tuple[HostEvidence, ...] = ()
    later: dict[int, int] = {}
    moment = 0.0
    if view.ended_at is None:
        await anyio.sleep(max(0.0, _MOMENT_S - (anyio.current_time() - started)))
        moment = anyio.current_time() - started
        again = _to_see_again(view, answering)
        locals_too = any(_is_in_start(one) for host in first for one in host.ranks)
        second = await mesh.evidence(view.run, ranks=again, locals=locals_too, timeout_s=_AGAIN_S)
        later = {one.rank: one.size for one in await _output(mesh, view, answering, 0)}
        view = await mesh.run(view.run)
    ends = [one.event for one in await mesh.events(_EVENTS) if one.event.run == view.run]
    notes = tuple(event.detail for event in ends if event.kind == "run_ended" and event.detail)
    return await _with_native(mesh, _case(view, at, first, second, slices, later, moment, notes))


async def _with_native(mesh: Mesh, case: RunCase) -> RunCase:
    """Tells native code that keeps the GIL from Python code that runs: a dear look, so of few ranks."""
    unclear = [
        one
        for one in case.alive
        if one.has_gil and one.second is not None and not one.flight.entries and not one.flight.problem
    ][:_MOST_NATIVE]
    native: dict[int, tuple[Frame, ...] | None] = {}
    for one in unclear:
        native[one.rank] = await _native_frames(mesh, case.run, one.rank)
        # Python code calls native code too, for moments.
        native[one.rank] = native[one.rank] and await _native_frames(mesh, case.run, one.rank)
    return replace(
        case, ranks=tuple(replace(one, native=native.get(one.rank, one.native)) for one in case.ranks)
    )


async def _native_frames(mesh: Mesh, run: str, rank: int) -> tuple[Frame, ...] | None:
    """The native code that has the GIL of a rank, empty where Python code has it; None: it cannot be seen."""
    try:
        stacks = await mesh.stacks(run, ranks=(rank,), native=True, timeout_s=_AGAIN_S)
    except MilkweedError:
        return None
    own = next((one for one in stacks if one.child_of is None), None)
    if own is None or own.source != "py-spy" or not own.threads:
        return None
    holder = next((one for one in own.threads if one.owns_gil), None)
    return tuple(takewhile(lambda frame: is_native(frame.file), holder.frames)) if holder is not None else ()


async def _output(
    mesh: Mesh, view: RunView, hosts: Collection[int], each: int | None = None
) -> tuple[OutputSlice, ...]:
    """Of ranks on these hosts: one that does not answer would be waited for."""
    ranks = tuple(rank.rank for rank in view.ranks if rank.host in hosts)
    size = tail_bytes(len(ranks)) if each is None else each
    return await mesh.read_output(view.run, ranks=ranks, tail_bytes=size, max_bytes=size)


def _is_in_start(evidence: RankEvidence) -> bool:
    """Variables are read where they tell: at the rendezvous. To read them holds a rank up for longer."""
    files = [frame.file for one in evidence.stacks for thread in one.threads for frame in thread.frames]
    return any(file.endswith(_RENDEZVOUS) for file in files) or not evidence.flight.entries


def _to_see_again(view: RunView, hosts: Collection[int]) -> tuple[int, ...]:
    """All that answer, or of many those at both ends: the rest is told by their collectives."""
    ranks = tuple(rank.rank for rank in view.ranks if rank.host in hosts)
    if len(ranks) <= _MOST_AGAIN:
        return ranks
    half = _MOST_AGAIN // 2
    return (*ranks[:half], *ranks[-half:])


def _case(
    view: RunView,
    at: MeshView,
    first: Sequence[HostEvidence],
    second: Sequence[HostEvidence],
    slices: Sequence[OutputSlice],
    later: dict[int, int],
    moment: float,
    notes: tuple[str, ...],
) -> RunCase:
    homes = Homes(at)
    found = {one.rank: one for host in first for one in host.ranks}
    again = {one.rank: one for host in second for one in host.ranks}
    outputs = {one.rank: one for one in slices}
    ranks = []
    for rank in view.ranks:
        output = outputs.get(rank.rank)
        text = homes.text(text_of(output)) if output is not None else ""
        size = output.size if output is not None else 0
        one = _rank(
            rank,
            text,
            at.spec.workspace,
            _look(found.get(rank.rank), homes, size),
            _look(again.get(rank.rank), homes, later.get(rank.rank, size)) if rank.rank in again else None,
            found.get(rank.rank),
            _woke(found.get(rank.rank), again.get(rank.rank)),
        )
        ranks.append(replace(one, note=output.note if output is not None else ""))
    return RunCase(
        run=view.run,
        mesh=view.mesh,
        state=view.state,
        ranks=tuple(ranks),
        hosts={host.host: host for host in first},
        reason=view.reason,
        workspace=at.spec.workspace,
        now=time.time(),
        moment_s=moment,
        source=source_reader(at.spec.workspace),
        mend=Mender(at).next_step,
        notes=notes,
    )


def _look(evidence: RankEvidence | None, homes: Homes, size: int) -> Look:
    if evidence is None:
        return Look(output_size=size)
    return Look(tuple(map(homes.stacks, evidence.stacks)), evidence.flight, size)


def _woke(first: RankEvidence | None, second: RankEvidence | None) -> int | None:
    if first is None or second is None or first.process is None or second.process is None:
        return None
    return second.process.switches - first.process.switches


def _failure(ending: Exit, text: str, workspace: str) -> PythonFailure | None:
    """Of a rank that a signal ended, what it raised and logged before is not why."""
    found = parse_failure(text, workspace=workspace)
    if found is None or ending.signal not in _NOT_RAISED:
        return found
    return found if found.exception == "Fatal Python error" or "terminate called" in text else None


def _rank(
    rank: RankView,
    text: str,
    workspace: str,
    first: Look,
    second: Look | None,
    evidence: RankEvidence | None,
    woke: int | None,
) -> RankCase:
    failed = rank.exit is not None and not rank.exit.ok and rank.exit.ended_by is None
    failure = _failure(rank.exit, text, workspace) if failed and rank.exit is not None else None
    unprinted = None
    if failed and failure is None and evidence is not None and rank.exit is not None:
        unprinted = _failure(rank.exit, evidence.raised, workspace)
    case = RankCase(
        rank.rank,
        rank.host,
        rank.state,
        rank.exit,
        rank.started_at,
        rank.ended_at,
        text,
        failure or unprinted,
        first,
        second,
        unprinted=unprinted is not None,
    )
    if evidence is None:
        return case
    return replace(
        case,
        kept=evidence.kept,
        process=evidence.process,
        faults=evidence.faults,
        fingerprint=evidence.fingerprint,
        metrics=evidence.metrics,
        group=evidence.group,
        woke=woke,
    )
