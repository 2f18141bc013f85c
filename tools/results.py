"""Shapes of structured results. Field names are fixed; the order is by importance.

Times are seconds. A field left out has its default here: it says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ..runtime.job_records import JobState, ReplicaState
from ..runtime.records import HostState, MeshState, RunState
from .words import size_in_words

__all__ = [
    "RESULT_BYTES",
    "CheckResult",
    "CheckedHosts",
    "CheckedLinks",
    "FailureGroup",
    "FetchResult",
    "FirstFailure",
    "GatherResult",
    "HostItem",
    "JobItem",
    "JobResult",
    "MeshItem",
    "MeshList",
    "MeshResult",
    "MeshStatus",
    "ReleaseResult",
    "ReplicaItem",
    "Result",
    "RunItem",
    "RunList",
    "RunResult",
    "SchedulerItem",
    "SchedulerList",
    "bounded",
]

RESULT_BYTES = 7500


class Result(BaseModel):
    """Base of structured results: `content()` is for programs and models, `summary()` for people."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    def content(self) -> dict[str, Any]:
        """The fields that say something, ready for JSON."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def summary(self) -> str:
        """A few short lines, warnings among them."""
        raise NotImplementedError


R = TypeVar("R", bound=Result)


def bounded(build: Callable[[float], R]) -> R:
    """The first of `build(1.0)`, `build(0.5)`, ... whose JSON has at most `RESULT_BYTES`."""
    for share in (1.0, 0.5, 0.25, 0.12):
        result = build(share)
        if len(json.dumps(result.content(), ensure_ascii=False).encode("utf-8", "replace")) <= RESULT_BYTES:
            break
    return result


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class SchedulerItem(_Item):
    scheduler: str
    available: bool
    reason: str = Field(default="", description="why it is not available, or what it is")
    hosts: str = Field(default="", description="how many it can give")
    devices: str = ""
    limits: str = ""
    expected_wait_s: float = 0.0


class SchedulerList(Result):
    schedulers: list[SchedulerItem]

    def summary(self) -> str:
        return ", ".join(
            f"{item.scheduler}: {'available' if item.available else item.reason or 'not available'}"
            for item in self.schedulers
        )


_IN_TEXT = 3


class MeshResult(Result):
    """What `allocate_mesh` and `extend_lease` answer."""

    mesh: str = Field(default="", description="id; empty for a dry run")
    state: MeshState | Literal["planned"]
    reason: str = Field(default="", description="why it is in this state, where that is not plain")
    hosts: int
    procs_per_host: int
    world_size: int
    scheduler: str
    engine: str
    workspace: str
    workspace_mode: str
    workspace_revision: str = ""
    workspace_left_out: str = Field(
        default="",
        description="what hosts are not shown of it, by which rule; .milkweedignore there has more rules",
    )
    lease_left_s: float
    would_start: list[str] = Field(default=[], description="dry run: what would be started")
    script: str = Field(default="", description="dry run: what the scheduler would be given")
    warnings: list[str] = []
    next: str = ""

    def summary(self) -> str:
        line = f"{self.mesh or 'dry run'}: {self.state}, {self.hosts} x {self.procs_per_host} ranks"
        reason = f" ({self.reason})" if self.reason else ""
        shown = f", workspace {self.workspace} ({self.workspace_mode})" if self.workspace_mode else ""
        line = f"{line}{reason}, lease {_minutes(self.lease_left_s)}{shown}"
        left_out = [f"not shown to hosts: {self.workspace_left_out}"] if self.workspace_left_out else []
        return "\n".join([line, *map(_cut, left_out), *_warned(self.warnings)])


class MeshItem(_Item):
    mesh: str
    state: MeshState
    reason: str = ""
    hosts: int
    procs_per_host: int
    scheduler: str
    workspace: str
    lease_left_s: float = 0.0
    warnings: list[str] = []


class MeshList(Result):
    meshes: list[MeshItem]
    more: int = Field(default=0, description="meshes left out")
    next: str = ""

    def summary(self) -> str:
        if not self.meshes:
            return "no meshes"
        return _listed([f"{item.mesh} ({item.state})" for item in self.meshes], self.more)


class HostItem(_Item):
    host: int
    name: str
    address: str = ""
    state: HostState
    reason: str = ""


class RunItem(_Item):
    run: str
    state: RunState
    health: Literal["ok", "slow", "hung"] = "ok"
    reason: str = ""
    ranks: dict[str, str] = Field(default={}, description="ranks by their state")
    command: str
    job: str = Field(default="", description="it is an attempt of one of its replicas")
    duration_s: float
    age_s: float = Field(description="since it was asked for")


class JobItem(_Item):
    job: str
    state: JobState
    reason: str = ""
    replicas: dict[str, str] = Field(default={}, description="replicas by their state")
    command: str
    duration_s: float


class MeshStatus(MeshResult):
    """What `mesh_status` answers: the mesh, and what is on it."""

    hosts_by_state: dict[str, str] = Field(default={}, description='such as {"ready": "0-2", "lost": "3"}')
    host_list: list[HostItem] = Field(default=[], description="hosts that are not ready first; at most 8")
    jobs: list[JobItem] = Field(default=[], description="replica jobs, newest first; at most 3")
    runs: list[RunItem] = Field(default=[], description="newest first; at most 5")
    devices: list[str] = Field(
        default=[], description="what there are, which rank is on which, what is wrong or used by others"
    )
    mounts: list[str] = Field(default=[], description="of mount_directory")
    written: list[str] = Field(default=[], description="files that only hosts have: they go with the mesh")
    procs: list[str] = Field(
        default=[], description="of controllers: how many, and which of them are busy, stuck or silent"
    )
    events: list[str] = Field(default=[], description="newest last; at most 10")

    def summary(self) -> str:
        hosts = [f"hosts {', '.join(f'{state} {which}' for state, which in self.hosts_by_state.items())}"]
        jobs = [f"{one.job}: {one.state}" for one in self.jobs]
        runs = [f"{one.run}: {one.state}, {one.command}" for one in self.runs[:_IN_TEXT]]
        written = [f"only on {one}" for one in self.written[:_IN_TEXT]]
        last = self.events[-_IN_TEXT:]
        known = hosts if self.hosts_by_state else []
        lines = (*known, *jobs, *runs, *self.devices[:_IN_TEXT], *self.mounts, *written, *self.procs, *last)
        return "\n".join([super().summary(), *map(_cut, lines)])


class CheckedHosts(_Item):
    hosts: str = Field(description="those that are alike share an entry")
    verdict: str = Field(description="ok, or what is wrong, the worst first")
    next: str = Field(default="", description="what mends the first of it")
    devices: str = Field(default="", description="accelerators with their memory")
    rdma: str = Field(default="", description="ports with their state")
    ucx: str = Field(default="", description="version of the loader's UCX, or why there is none")
    memlock: str = Field(default="", description="soft limit of memory that may be locked")
    shm_free: str = Field(default="", description="in /dev/shm, the least of these hosts")
    disk_free: str = Field(default="", description="where runs write, the least of these hosts")


class CheckedLinks(_Item):
    links: str = Field(description='"0<-1": host 0 reads from host 1')
    transport: str = Field(description="that was really used")
    gb_per_s: str = Field(description="of one-sided reads; of several links lowest to highest")
    not_used: str = Field(default="", description="better ways, and why they were passed over")


class CheckResult(Result):
    mesh: str
    verdict: str = Field(description="ok, or the hosts that something is wrong with")
    host_list: list[CheckedHosts] = Field(description="the worst first")
    links: list[CheckedLinks] = []
    collective: str = Field(default="", description="an all-reduce over gloo between hosts that are apart")
    more: int = Field(default=0, description="entries left out")
    next: str = ""

    def summary(self) -> str:
        lines = [f"{self.mesh}: {self.verdict}"]
        lines += [
            f"host{'' if item.hosts.isdecimal() else 's'} {item.hosts}: {item.verdict}"
            for item in self.host_list[:1]
            if item.next
        ]
        lines += ["; ".join(f"{item.links} {item.transport} {item.gb_per_s} GB/s" for item in self.links)]
        lines += [self.collective, self.next]
        return "\n".join(_cut(line) for line in lines if line)


class ReleaseResult(Result):
    mesh: str
    state: Literal["released", "releasing", "not_released"] = Field(
        default="released", description="not_released: to be confirmed; releasing: files are being kept"
    )
    reason: str = ""
    would_lose: list[str] = Field(default=[], description="files that only its hosts have, not yet released")
    confirm: str = Field(default="", description="the plan to call again with")
    lost: str = Field(default="", description="what went with the hosts")
    kept: str = Field(default="", description="what was kept, and where")
    not_kept: list[str] = []
    runs_ended: list[str] = []
    jobs_ended: list[str] = []
    processes_ended: int = 0
    unmounted_in_use: list[str] = Field(default=[], description="who was in a mount when it went")
    output_directory: str = ""
    next: str = ""

    def content(self) -> dict[str, Any]:
        return {"mesh": self.mesh, "state": self.state, **super().content()}

    def summary(self) -> str:
        if self.state == "not_released":
            more = len(self.would_lose) - _IN_TEXT
            lost = [*self.would_lose[:_IN_TEXT], *([f"and {more} more lines"] if more > 0 else [])]
            lines = [f"{self.mesh}: not released; {self.reason}", *lost]
            return "\n".join([*map(_cut, lines), self.next])  # whole: it has the plan
        ended = f"; runs ended: {', '.join(self.runs_ended)}" if self.runs_ended else ""
        why = f" ({self.reason})" if self.reason else ""
        lines = [f"{self.mesh}: {self.state}{why}, {self.processes_ended} processes ended{ended}"]
        lines += [f"kept: {self.kept}"] if self.kept else []
        lines += [f"not kept: {one}" for one in self.not_kept[:_IN_TEXT]]
        lines += [f"lost: {self.lost}"] if self.lost else []
        return "\n".join(map(_cut, lines))


class MountResult(Result):
    mount: str = Field(description="id")
    mesh: str
    source: str
    path: str = Field(description="where hosts have it")
    mode: str
    revision: str = ""
    entries: int = 0
    left_out: str = Field(default="", description="what hosts are not shown of it")
    warnings: list[str] = []
    next: str = ""

    def summary(self) -> str:
        where = "" if self.path == self.source else f" at {self.path}"
        line = _cut(f"{self.mount}: {self.source}{where} on {self.mesh} ({self.mode})")
        return "\n".join([line, *_warned(self.warnings)])


class GatherResult(Result):
    mount: str = Field(description="id")
    mesh: str
    remote_path: str
    mountpoint: str = Field(description="files are at mountpoint/HOST/...")
    hosts: str
    warnings: list[str] = []
    next: str = ""

    def summary(self) -> str:
        line = (
            f"{self.mount}: {self.remote_path} of hosts {self.hosts} of {self.mesh} at {self.mountpoint}/HOST"
        )
        return "\n".join([_cut(line), *_warned(self.warnings)])


class UnmountResult(Result):
    mount: str
    mesh: str
    source: str
    in_use: list[str] = Field(default=[], description="programs that were in it")

    def summary(self) -> str:
        used = f"; in use by {', '.join(self.in_use)}" if self.in_use else ""
        return _cut(f"{self.mount} ({self.source}) was taken from {self.mesh}{used}")


class FirstFailure(_Item):
    rank: int
    host: int
    exit: str = Field(description='in words, such as "exit 1" or "SIGSEGV"')
    exception: str = ""
    traceback: str = Field(default="", description="the end of it")


class FailureGroup(_Item):
    ranks: str
    exit: str
    exception: str = ""


class RunResult(Result):
    """What every tool answers that starts, awaits or ends a run."""

    run: str
    mesh: str
    state: RunState
    reason: str = ""
    host_copies: list[str] = Field(
        default=[], description="files that hosts had written and were edited here: these are there now"
    )
    health: Literal["ok", "slow", "hung"] = "ok"
    still_s: float = Field(default=0, description="for how long no rank has moved: output, steps, stacks")
    pace: str = Field(default="", description="of a slow run: its steps now, and as they were")
    ranks: dict[str, str] = Field(default={}, description="ranks by their state")
    first_failure: FirstFailure | None = None
    failure_groups: list[FailureGroup] = Field(
        default=[], description="ranks that failed alike, the first failure's first"
    )
    output_tail: str = Field(default="", description="folded across ranks")
    cursor: str = Field(default="", description="for read_run_output: what comes after this tail")
    matched: bool | None = Field(
        default=None, description="wait_for_run with a pattern: whether a line has it"
    )
    match: str = Field(default="", description="the last line that has the pattern, with its rank")
    command: str = ""
    start: Literal["", "warm", "cold", "mixed"] = Field(default="", description="of its Python processes")
    cold_because: str = ""
    job: str = Field(default="", description="it is an attempt of one of its replicas")
    duration_s: float
    workspace_revision: str = Field(default="", description="has every edit made before the run")
    edited_since_start: bool = Field(default=False, description="the workspace is another one by now")
    lease_left_s: float
    warnings: list[str] = []
    next: str = ""

    def summary(self) -> str:
        lines = [
            f"{self.run}: {self.state} after {self.duration_s:g} s"
            + (f", {self.start} start" if self.start else "")
            + (f", hung: nothing has moved for {self.still_s:.0f} s" if self.health == "hung" else "")
            + (f", slow: {self.pace}" if self.health == "slow" else "")
            + (f" ({self.reason})" if self.reason else "")
        ]
        lines += self.host_copies
        if self.first_failure is not None:
            failure = self.first_failure
            said = f": {failure.exception}" if failure.exception else ""
            lines.append(f"first failure: rank {failure.rank} on host {failure.host}, {failure.exit}{said}")
        lines += [
            f"rank{'' if one.ranks.isdecimal() else 's'} {one.ranks}: {one.exception or one.exit}"
            for one in self.failure_groups[1:]
        ]
        if self.match:
            lines.append(f"matched: {self.match}")
        lines += _warned(self.warnings)
        if self.edited_since_start:
            lines.append("the workspace was edited since it began")
        if self.next:
            lines.append(self.next)
        head = "\n".join(_cut(line.splitlines()[0]) for line in lines)
        # Clients show the model either this or the structured twin: what was printed is in both.
        shown = self.first_failure.traceback if self.first_failure else ""
        return "\n".join(filter(None, (head, shown, self.output_tail)))


class ReplicaItem(_Item):
    replicas: str = Field(description='which; those that are alike share an entry, such as "0-62"')
    state: ReplicaState
    reason: str = ""
    attempt: int = Field(default=0, description="the latest, from 1")
    restarts: int = Field(default=0, description="that failures led to")
    failed_attempt: int = Field(default=0, description="the one that last failed")
    last_failure: str = Field(default="", description="rank, exit, and exception or last line")
    hosts: str
    runs: dict[str, str] = Field(default={}, description="latest attempt of each, by replica")
    pids: dict[str, list[int]] = Field(default={}, description="of the ranks that run, by replica")


class JobResult(Result):
    """What the tools of replicas answer."""

    job: str
    mesh: str
    state: JobState
    reason: str = ""
    replicas: dict[str, str] = Field(default={}, description="replicas by their state")
    procs_per_replica: int
    restarts: int = Field(default=0, description="of all replicas, that failures led to")
    replica_list: list[ReplicaItem] = Field(default=[], description="troubled ones first")
    more: int = Field(default=0, description="replicas left out of it")
    command: str = ""
    duration_s: float
    lease_left_s: float
    warnings: list[str] = []
    next: str = ""

    def summary(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        states = ", ".join(f"{state} {which}" for state, which in self.replicas.items())
        lines = [f"{self.job}: {self.state} after {self.duration_s:g} s{reason}; replicas {states}"]
        failed = next((item for item in self.replica_list if item.last_failure), None)
        if failed is not None:
            attempt = f", attempt {failed.failed_attempt}" if failed.failed_attempt else ""
            since = failed.attempt > failed.failed_attempt > 0
            now = f" (attempt {failed.attempt} is {failed.state})" if since else ""
            lines.append(f"replica {failed.replicas}{attempt}{now}: {failed.last_failure}")
        return "\n".join(_cut(line) for line in (*lines, self.next) if line)


class RunList(Result):
    mesh: str
    runs: list[RunItem]
    more: int = Field(default=0, description="older runs left out")
    next: str = ""

    def summary(self) -> str:
        if not self.runs:
            return f"{self.mesh}: no runs"
        return _listed([f"{item.run} ({item.state})" for item in self.runs], self.more)


class FetchResult(Result):
    destination: str
    files: int = Field(description="copied now")
    bytes: int = Field(description="copied now")
    unchanged: int = Field(default=0, description="files that were there already with the same content")
    left: int = Field(default=0, description="files that are not copied yet, for lack of time")
    skipped: list[str] = Field(default=[], description="what is no regular file, the first ten")
    not_fetched: list[str] = Field(default=[], description="hosts that do not have it, or do not answer")
    hosts: str
    note: str = ""
    elapsed_s: float
    next: str = ""

    def summary(self) -> str:
        same = f", {self.unchanged} were there already" if self.unchanged else ""
        left = f", {self.left} are left" if self.left else ""
        files = f"{self.files:,} file{'' if self.files == 1 else 's'} ({size_in_words(self.bytes)})"
        line = f"{files} to {self.destination}/HOST of host{_s(self.hosts)} {self.hosts}{same}{left}"
        notes = [*self.not_fetched, *self.skipped][:_IN_TEXT]
        return "\n".join(map(_cut, filter(None, [line, *notes, self.note, self.next])))


def _s(hosts: str) -> str:
    return "" if hosts.isdecimal() else "s"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


def _listed(words: list[str], more: int, limit: int = 240) -> str:
    """As many as there is room for, whole, and how many are left out."""
    shown = list(words)
    while len(", ".join(shown)) > limit:
        shown.pop()
    more += len(words) - len(shown)
    return ", ".join([*shown, *[f"{more} more"] * bool(more)])


def _warned(warnings: list[str]) -> list[str]:
    """The first few, for a summary."""
    return [_cut(f"warning: {' '.join(one.split())}") for one in warnings[:3]]


def _cut(text: str, limit: int = 240) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
