"""The work of `profile_run`: ask the ranks, tell what is hot, and leave files for who wants to see more."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from ..runtime.agent.hook_protocol import HOOK_DIRECTORY
from ..runtime.mesh import format_ranks
from ..runtime.profiling import ProfileRequest, RankProfile, TorchOp, read_trace
from ..runtime.records import MeshView
from .homes import Homes
from .profile_report import ProfileCase, SourceLine, group_title, read_ranks, report
from .verdicts.flame_graph import flame_graph
from .verdicts.profile import group_ranks, merge
from .verdicts.speedscope import speedscope

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["profile_ranks"]


async def profile_ranks(
    mesh: Mesh, run: str, ranks: Sequence[int], request: ProfileRequest, source_line: SourceLine
) -> str:
    """The report, and the paths of the files."""
    profiles = await mesh.profile(run, request, ranks=ranks)
    at = await mesh.view()
    directory = mesh.profiles
    return await anyio.to_thread.run_sync(_tell, run, profiles, request, at, directory, source_line)


def _tell(
    run: str,
    profiles: Sequence[RankProfile],
    request: ProfileRequest,
    at: MeshView,
    directory: Path,
    source_line: SourceLine,
) -> str:
    traced, ops, problems = _read_traces(profiles)
    case = ProfileCase(
        run=run,
        request=request,
        ranks=read_ranks(profiles, Homes(at).text, str(HOOK_DIRECTORY)),
        errors={one.rank: one.error for one in profiles if one.error},
        notes={one.rank: one.note for one in profiles if one.note},
        traced=traced,
        ops=ops,
        problems=problems,
        workspace=at.spec.workspace,
    )
    return report(case, source_line, _write(case, profiles, directory, at.mesh))


def _read_traces(
    profiles: Sequence[RankProfile],
) -> tuple[tuple[int, ...], tuple[TorchOp, ...], dict[int, str]]:
    """Operations of all ranks together, and why there are none of a rank."""
    traced: list[int] = []
    problems: dict[int, str] = {}
    counts: Counter[tuple[str, bool]] = Counter()
    times: Counter[tuple[str, bool]] = Counter()
    for one in profiles:
        if one.torch is None:
            continue
        try:
            if one.torch.problem:
                raise ValueError(one.torch.problem)
            for op in read_trace(one.torch.trace):
                counts[op.name, op.device] += op.count
                times[op.name, op.device] += op.self_s  # type: ignore[assignment]
            traced.append(one.rank)
        except ValueError as error:
            problems[one.rank] = str(error)
    ops = [TorchOp(name, counts[name, device], spent, device) for (name, device), spent in times.items()]
    return tuple(traced), tuple(sorted(ops, key=lambda op: -op.self_s)), problems


def _write(case: ProfileCase, profiles: Sequence[RankProfile], directory: Path, mesh: str) -> list[str]:
    """The files, as lines of the answer; where the disk is full, that."""
    traces = {one.rank: one.torch.trace for one in profiles if one.torch is not None and one.torch.trace}
    sampled = any(rank.stacks or rank.children for rank in case.ranks)
    told: list[str] = []
    if not sampled and not traces:
        return told
    stem = ""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = _claim(case.run, directory)
        if sampled:
            graph, scope = f"{stem}.svg", f"{stem}.speedscope.json"
            _write_stacks(case, directory / graph, directory / scope)
            told += [
                f"{graph} (flame graph, any browser)",
                f"{scope} (each rank, https://www.speedscope.app)",
            ]
        for rank, trace in traces.items():
            (directory / f"{stem}.rank-{rank}.trace.json.gz").write_bytes(trace)
        if traces:
            which = str(min(traces)) if len(traces) == 1 else "*"
            told.append(f"{stem}.rank-{which}.trace.json.gz (torch, https://ui.perfetto.dev)")
    except OSError as error:
        for part in directory.glob(f"{stem}.*") if stem else ():
            part.unlink(missing_ok=True)
        return [f"its files cannot be written to {directory}: {error.strerror}"]
    finally:
        if stem:
            (directory / f".{stem}.claim").unlink(missing_ok=True)
    return [
        f"files in {directory}, and resources (profile://{mesh}/FILE):",
        *(f"  {one}" for one in told),
    ]


def _claim(run: str, directory: Path) -> str:
    """A name for files that no other profile has, nor one that ends in the same second."""
    stem = f"{run}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    for number in count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        with suppress(FileExistsError):
            claim = directory / f".{name}.claim"
            claim.touch(mode=0o600, exist_ok=False)
            if not list(directory.glob(f"{name}.*")):
                return name
            claim.unlink()
    raise AssertionError("there is always a next number")


def _write_stacks(case: ProfileCase, graph: Path, scope: Path) -> None:
    title = f"{case.run}, {case.request.seconds:g} s, ranks {format_ranks([one.rank for one in case.ranks])}"
    every = {f"rank {one.rank}": (*one.stacks, *one.children) for one in case.ranks}
    together = {"all ranks": merge(every.values()), **every}
    groups = group_ranks(case.ranks)
    parts = {group_title(group): merge((*r.stacks, *r.children) for r in group) for group in groups}
    scope.write_text(json.dumps(speedscope(title, together), separators=(",", ":")), encoding="utf-8")
    graph.write_text(flame_graph(title, parts, workspace=case.workspace), encoding="utf-8")
