"""Evidence of a run as a file, so that it can be judged again without a process.

recorded = await record(running)           # beside a run that can be asked about
path.write_text(as_text(tidied(recorded, ...)))
case = await recorded_case(load(path))     # what the rules are given, later and elsewhere
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from milkweed.runtime.client import Mesh
from milkweed.runtime.codec import from_json, to_json
from milkweed.runtime.evidence import Disk, Fingerprint, HostEvidence, KernelLine, Memory, RankEvidence
from milkweed.runtime.records import (
    Frame,
    HostEvent,
    MeshSpec,
    MeshView,
    OutputSlice,
    ProcessStacks,
    RunView,
    ThreadStack,
)
from milkweed.tools import looking
from milkweed.tools.verdicts.causes import RunCase

__all__ = ["WORKSPACE", "Recorded", "as_text", "load", "record", "recorded_case", "strange_paths", "tidied"]

WORKSPACE = "/project"
_MOST_ENTRIES = 24
_MOST_POINTS = 60
_MOST_OUTPUT = 4096
_OUR_VARIABLES = re.compile(r"RANK|WORLD_SIZE|GROUP_RANK|LOCAL_\w+|MASTER_\w+")
_KEPT_PACKAGES = ("torch", "numpy")
_TELLS_OF_LOCALS = ("torch/distributed/rendezvous.py", "torch/distributed/distributed_c10d.py")
_ADDRESS = re.compile(r"\b(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}\b(?=\]?:\d)")
_PID = re.compile(r"(?<=pid )\d+|(?<=pid\(s\) )[\d, ]+\d|(?<=process )\d+(?= \()")
_MEMORY = 16 << 30
# Where frames, tracebacks and fingerprints name files; and the places that stand for those of the machine.
_PATH = re.compile(r'(?:File \\"|"(?:interpreter|script|file|command|path)":")(/[^"\\ ]*)')
_NEUTRAL = (WORKSPACE, "/venv/", "/usr/local/", "/state", "/runtime", "/dev/")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What `look_at` asked for, in its order, and what it was a moment of; `files` are the user's own."""

    case: str
    view: RunView
    now: float
    moment_s: float
    looks: tuple[tuple[HostEvidence, ...], ...]
    outputs: tuple[tuple[OutputSlice, ...], ...]
    events: tuple[HostEvent, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


class _Listening:
    """A mesh that remembers what it answered."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.looks: list[tuple[HostEvidence, ...]] = []
        self.outputs: list[tuple[OutputSlice, ...]] = []
        self.noted: tuple[HostEvent, ...] = ()
        self.view: RunView | None = None

    async def evidence(self, *args: Any, **named: Any) -> tuple[HostEvidence, ...]:
        self.looks.append(await self._mesh.evidence(*args, **named))
        return self.looks[-1]

    async def read_output(self, *args: Any, **named: Any) -> tuple[OutputSlice, ...]:
        self.outputs.append(await self._mesh.read_output(*args, **named))
        return self.outputs[-1]

    async def run(self, run: str) -> RunView:
        self.view = await self._mesh.run(run)
        return self.view

    async def events(self, *args: Any, **named: Any) -> Sequence[Any]:
        found = await self._mesh.events(*args, **named)
        self.noted = tuple(one.event for one in found if one.event.kind == "run_ended")
        return found


class _Replaying:
    """A mesh that answers what was recorded."""

    def __init__(self, recorded: Recorded) -> None:
        self._looks = iter(recorded.looks)
        self._outputs = iter(recorded.outputs)
        self._view = recorded.view
        self._events = recorded.events

    async def evidence(self, *_args: Any, **_named: Any) -> tuple[HostEvidence, ...]:
        return next(self._looks)

    async def read_output(self, *_args: Any, **_named: Any) -> tuple[OutputSlice, ...]:
        return next(self._outputs)

    async def run(self, _run: str) -> RunView:
        return self._view

    async def events(self, *_args: Any, **_named: Any) -> Sequence[Any]:
        return [SimpleNamespace(event=event) for event in self._events]


async def record(case: str, mesh: Mesh, run: str, files: Mapping[str, str]) -> tuple[Recorded, RunCase]:
    """Looks at a run as a diagnosis does."""
    listening = _Listening(mesh)
    view = await mesh.run(run)
    seen = await looking.look_at(listening, view, await mesh.view())  # type: ignore[arg-type]
    looks, outputs = tuple(listening.looks), tuple(listening.outputs)
    at = (seen.now, seen.moment_s)
    return Recorded(case, listening.view or view, *at, looks, outputs, listening.noted, files), seen


async def recorded_case(recorded: Recorded) -> RunCase:
    """What the rules were given."""
    at = MeshView("mesh-1", MeshSpec("trainers", 1, 1, workspace=WORKSPACE), "ready")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looking, "_MOMENT_S", 0.0)
        # A run that lived was looked at twice, whatever it is by now.
        lived = len(recorded.looks) > 1
        view = replace(recorded.view, ended_at=None) if lived else recorded.view
        seen = await looking.look_at(_Replaying(recorded), view, at)  # type: ignore[arg-type]
    return replace(seen, now=recorded.now, moment_s=recorded.moment_s, source=recorded.files.get)


def as_text(recorded: Recorded) -> str:
    value = {
        "case": recorded.case,
        "now": recorded.now,
        "moment_s": recorded.moment_s,
        "view": to_json(recorded.view),
        "looks": to_json(recorded.looks),
        "outputs": [[_output_to_json(one) for one in each] for each in recorded.outputs],
        "events": to_json(recorded.events),
        "files": dict(recorded.files),
    }
    return json.dumps(value, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n"


def load(text: str) -> Recorded:
    value = json.loads(text)
    return Recorded(
        value["case"],
        from_json(RunView, value["view"]),
        value["now"],
        value["moment_s"],
        tuple(tuple(from_json(HostEvidence, one) for one in each) for each in value["looks"]),
        tuple(tuple(_output_from_json(one) for one in each) for each in value["outputs"]),
        tuple(from_json(HostEvent, one) for one in value["events"]),
        value["files"],
    )


def _output_to_json(one: OutputSlice) -> dict[str, Any]:
    return {**to_json(replace(one, data=b"")), "data": one.data.decode("utf-8", "replace")}


def _output_from_json(value: dict[str, Any]) -> OutputSlice:
    return from_json(OutputSlice, {**value, "data": value["data"].encode()})


def tidied(recorded: Recorded, replacing: Mapping[str, str], variables: Iterable[str]) -> Recorded:
    """Without what is of the machine that it was recorded on, and without what no rule reads.

    `replacing`: texts (paths, names) and what stands for them; `variables` matter besides the launcher's.
    """
    looks = tuple(_thinned(each, set(variables)) for each in recorded.looks)
    named = {frame.file for frame in _frames(recorded.looks)}
    ran = recorded.view.command.split()[-1]
    files = {
        name: text
        for name, text in recorded.files.items()
        if name.endswith(f"/{ran}") or any(file.endswith(name.removeprefix(WORKSPACE)) for file in named)
    }
    outputs = tuple(tuple(map(_shortened, each)) for each in recorded.outputs)
    value = json.loads(as_text(replace(recorded, looks=looks, outputs=outputs, files=files)))
    pids = {str(rank.pid) for rank in recorded.view.ranks if rank.pid} | set(_pids(looks))
    numbers = {one: str(100 + at) for at, one in enumerate(sorted(pids))}
    return load(json.dumps(_neutral(value, _Replacing(replacing, numbers))))


class _Replacing:
    def __init__(self, texts: Mapping[str, str], pids: Mapping[str, str]) -> None:
        longest_first = sorted(texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if texts else None
        self._texts = texts
        self.pids = pids

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(lambda found: self._texts[found[0]], text)
        text = _PID.sub(lambda found: ", ".join(map(self._pid, re.split(r", ?", found[0]))), text)
        return _ADDRESS.sub("10.0.0.1", text)

    def _pid(self, number: str) -> str:
        return self.pids.get(number, "99")


def _neutral(value: Any, replacing: _Replacing) -> Any:
    if isinstance(value, str):
        return replacing.pids.get(value) or replacing(value)
    if isinstance(value, list):
        return [_neutral(one, replacing) for one in value]
    if isinstance(value, dict):
        found = {replacing(key): _neutral(one, replacing) for key, one in value.items()}
        for name in ("pid", "child_of"):
            if isinstance(found.get(name), int) and str(found[name]) in replacing.pids:
                found[name] = int(replacing.pids[str(found[name])])
        return found
    return value


def _pids(looks: Sequence[Sequence[HostEvidence]]) -> Iterator[str]:
    found: set[str] = set()
    for host in (host for each in looks for host in each):
        for rank in host.ranks:
            found |= {str(rank.process.pid)} if rank.process is not None else set()
            for process in rank.stacks:
                found |= {str(process.pid)} | ({str(process.child_of)} if process.child_of else set())
                found |= {thread.thread for thread in process.threads if thread.thread.isdecimal()}
        found |= {str(one.pid) for one in host.listeners if one.pid}
    yield from found


def _frames(looks: Sequence[Sequence[HostEvidence]]) -> Iterator[Frame]:
    for rank in (rank for each in looks for host in each for rank in host.ranks):
        for process in rank.stacks:
            for thread in process.threads:
                yield from thread.frames


def _thinned(hosts: Sequence[HostEvidence], variables: set[str]) -> tuple[HostEvidence, ...]:
    prints = [rank.fingerprint for host in hosts for rank in host.ranks]
    packages = _differing([dict(one.packages) for one in prints]) | set(_KEPT_PACKAGES)
    modules = _differing([dict(one.modules) for one in prints if one.modules])

    def thin(rank: RankEvidence) -> RankEvidence:
        entries = rank.flight.entries[-_MOST_ENTRIES:]
        metrics = rank.metrics
        if metrics is not None and len(metrics.points) > _MOST_POINTS:
            every = -(-len(metrics.points) // _MOST_POINTS)
            kept = [one for at, one in enumerate(metrics.points[:-1]) if at % every == 0]
            metrics = replace(metrics, points=(*kept, metrics.points[-1]))
        print_ = replace(
            rank.fingerprint,
            packages=_only(rank.fingerprint.packages, packages),
            modules=_only(rank.fingerprint.modules, modules),
            variables={
                name: value
                for name, value in rank.fingerprint.variables.items()
                if _OUR_VARIABLES.fullmatch(name) or name in variables
            },
        )
        return replace(
            rank,
            stacks=tuple(map(_without_locals, rank.stacks)),
            flight=replace(rank.flight, entries=entries),
            fingerprint=print_ if print_ != Fingerprint() else rank.fingerprint,
            metrics=metrics,
        )

    return tuple(
        replace(
            host,
            ranks=tuple(map(thin, host.ranks)),
            memory=_machine(host.memory),
            disks=tuple(_roomy(disk) for disk in host.disks if disk.path == "/dev/shm" or not disk.free),
            kernel=tuple(KernelLine(line.at, line.text) for line in host.kernel[-2:]),
        )
        for host in hosts
    )


def _roomy(disk: Disk) -> Disk:
    return disk if disk.free < 0.5 * disk.total else Disk(disk.path, _MEMORY // 2, _MEMORY // 2)


def _machine(memory: Memory | None) -> Memory | None:
    if memory is None:
        return None
    return replace(memory, total=_MEMORY, available=_MEMORY // 2, machine_kills=0)


def _only(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _differing(each: Sequence[Mapping[str, Any]]) -> set[str]:
    names = {name for values in each for name in values}
    return {name for name in names if len({values.get(name) for values in each}) > 1}


def _without_locals(process: ProcessStacks) -> ProcessStacks:
    def frame(one: Frame) -> Frame:
        return one if one.file.endswith(_TELLS_OF_LOCALS) else replace(one, locals=())

    def thread(one: ThreadStack) -> ThreadStack:
        return replace(one, frames=tuple(map(frame, one.frames)))

    return replace(process, threads=tuple(map(thread, process.threads)))


def _shortened(one: OutputSlice) -> OutputSlice:
    cut = max(0, len(one.data) - _MOST_OUTPUT)
    return replace(one, start=one.start + cut, data=one.data[cut:])


def strange_paths(text: str) -> list[str]:
    """Paths of files and programs in a recording that are of no place that stands for another."""
    return [path for path in _PATH.findall(text) if not path.startswith(_NEUTRAL)]
