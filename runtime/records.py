"""The facts that travel between client, keeper and hosts: plain frozen records, no behaviour but arithmetic.

Times are seconds: `*_at` on the wall clock (Unix time), `*_s` a duration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Launcher = Literal["spmd", "torchrun", "per_host", "single"]
MeshState = Literal["queued", "starting", "ready", "degraded", "released"]
HostState = Literal["starting", "ready", "silent", "lost"]
RunState = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost"]
RankState = Literal["pending", "running", "succeeded", "failed", "ended", "lost"]
EndReason = Literal["cancelled", "timeout", "peer_failed", "released", "lease_ended", "host_ended"]


@dataclass(frozen=True, slots=True)
class MeshSpec:
    """What `allocate_mesh` was asked for; equal specs under one name are the same mesh."""

    name: str
    hosts: int
    procs_per_host: int
    scheduler: str = "local"
    engine: str = "embedded"
    workspace: str = ""
    workspace_mode: str = "auto"
    lease_minutes: float = 60.0
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        return self.hosts * self.procs_per_host


@dataclass(frozen=True, slots=True)
class HostView:
    host: int
    name: str
    address: str
    state: HostState
    agent_pid: int | None = None
    directory: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MountSpec:
    """A directory of the client that hosts are shown: `source` there, `path` on the hosts.

    `mode`: auto, shared, mount or copy. `mount` is its id; empty for the workspace.

    Or, with the mode `gather`, the other way round: `source` is a path of `hosts` (empty: all), seen at
    `path` on the client, where the directories `made` were made for it, the innermost first.
    """

    mount: str
    source: str
    path: str
    mode: str = "auto"
    hosts: tuple[int, ...] = ()
    made: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownTree:
    """How one host has a directory: `mode` is empty where it has it not, `problem` says why (not any more).

    `path` is where; `why` the reason of the mode; `mend` what would make a mount possible.
    """

    host: int
    mode: str = ""
    path: str = ""
    why: str = ""
    problem: str = ""
    mend: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a directory the hosts are not shown: by which rule, and how much it is."""

    rule: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TreeView:
    """A directory as hosts have it. Where all share it, `revision` is 0 and nothing is left out."""

    hosts: tuple[ShownTree, ...] = ()
    revision: int = 0
    entries: int = 0
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class MountView:
    spec: MountSpec
    tree: TreeView = field(default_factory=TreeView)


@dataclass(frozen=True, slots=True)
class MeshView:
    """`expected_start_at`: when a mesh that waits in a queue may get its hosts, if that is known."""

    mesh: str
    spec: MeshSpec
    state: MeshState
    hosts: tuple[HostView, ...] = ()
    reason: str = ""
    lease_left_s: float = 0.0
    created_at: float = 0.0
    warnings: tuple[str, ...] = ()
    workspace: TreeView = field(default_factory=TreeView)
    mounts: tuple[MountView, ...] = ()
    expected_start_at: float | None = None

    @property
    def end_words(self) -> str:
        """Of one that was released, what else is to be said: `the lease ended; 3 files are kept in ...`."""
        return self.reason.removeprefix("released").removeprefix("; ")

    @property
    def how_it_ended(self) -> str:
        return f"{self.mesh} was released" + (f": {self.end_words}" if self.end_words else "")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `code` (it exited) or `signal` (it was killed), never both.

    `oom_kills` is by how much the kernel's oom_kill counter rose while the process was being ended.
    `ended_by` is set when Milkweed ended it, and why; `error` when it never started.
    """

    code: int | None = None
    signal: int | None = None
    oom_kills: int = 0
    ended_by: EndReason | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.error


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process of a run on one host, ready to be started.

    `label` names its output file: `rank-3`, or `torchrun-0` for a launcher that starts ranks itself.
    `env` is laid over the host agent's own environment. `cold`: why it is not to be forked by a starter,
    empty where that was asked for; None: it may be. `own_device`: its place on its host, where it is to see
    the device of that place alone.
    """

    rank: int
    label: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    cold: str | None = None
    own_device: int | None = None


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What one host does in a run. `child_ranks` are ranks that a launcher (torchrun) starts itself.

    `reserved_port` is a port of this host (`Runs.reserve_port`) that is given back when the run ends; 0 for
    none. `interpreter` runs the script, whatever its `#!` line says; empty: that line does.
    """

    run: str
    host: int
    processes: tuple[ProcessPlan, ...]
    child_ranks: tuple[int, ...] = ()
    script: str | None = None
    timeout_s: float | None = None
    reserved_port: int = 0
    interpreter: str = ""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What `run_on_mesh` was asked for, checked but not yet placed on hosts.

    `keep` are globs, absolute, of files that are to outlive the mesh. `scratch` are folders of the workspace
    that are bound to plain directories of each host; `discard` clears what hosts wrote over it first.
    `own_device` shows each rank the device of its LOCAL_RANK alone.

    `attach` makes it a controller: a Python program, where `attach()` gives the hosts of the mesh. Without
    `ranks` it goes to the first host that is ready.
    """

    argv: tuple[str, ...]
    launcher: Launcher = "spmd"
    script: str | None = None
    ranks: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    timeout_s: float | None = None
    keep_going: bool = False
    warm: bool = True
    attach: bool = False
    keep: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    discard: bool = False
    own_device: bool = False


@dataclass(frozen=True, slots=True)
class Slowness:
    """Since when steps take longer than they did; `usual_s` and `step_s` are seconds a step, then and now."""

    since: float
    usual_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank of a run as far as it is known; `pid` is on its host.

    `start` is `warm`, `cold`, or `cold: ` and why; empty until it has started, and for what is no Python.
    `still_since`: nothing of its host's part of the run has moved since; it stays where Milkweed ended it.
    `slow`: its host's part of the run takes its steps more slowly than before.
    """

    rank: int
    host: int
    state: RankState = "pending"
    pid: int | None = None
    exit: Exit | None = None
    started_at: float | None = None
    ended_at: float | None = None
    start: str = ""
    still_since: float | None = None
    slow: Slowness | None = None


@dataclass(frozen=True, slots=True)
class HostCopies:
    """Files that a host wrote and the client changed since: the client's are there now.

    `files` are paths in the workspace, each with that of the host's own, which is empty where the host had
    removed it.
    """

    host: int
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """`still_since`: no living rank has moved since; None while anything moves. It stays where Milkweed ended
    a run that stood still. `slow`: what its slowest host says of its steps.
    """

    run: str
    mesh: str
    state: RunState
    launcher: Launcher
    command: str
    ranks: tuple[RankView, ...]
    created_at: float
    ended_at: float | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    keep_going: bool = False
    job: str = ""
    workspace_revision: int = 0
    edited_since_start: bool = False
    keep: tuple[str, ...] = ()
    host_copies: tuple[HostCopies, ...] = ()
    still_since: float | None = None
    slow: Slowness | None = None


@dataclass(frozen=True, slots=True)
class ReplicaNote:
    """Which replica an event is about. Its attempts count from 1; `restarts` are those that failures led to.

    `tail` are the last output lines of the rank that failed.
    """

    job: str
    replica: int
    attempt: int
    restarts: int = 0
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostEvent:
    """One line of a host's spool; `seq` starts at 1 and has no gaps, `at` is wall clock.

    kinds: `rank_started` (pid; detail: `RankView.start`), `rank_exited` (exit), `rank_failed_to_start`
    (exit.error), `run_ended`, `run_still` (detail: since when, wall clock) and `run_moves` of its part of a
    run, `run_slow` (slow), `run_at_pace`, `output_capped`, `spool_delayed`, `host_ending` (detail: why),
    `proc_died` (exit; detail: whose it was; not where that was asked for),
    `mount_in_use` (detail: who was in it when it was unmounted), `read_failed` (detail: of which file, why),
    `mount_lost` (detail: which, how; it is started again);
    of a replica (note; run: its attempt's): `replica_started`, `replica_failed` (rank, exit),
    `replica_gave_up` and `replica_stopped` (detail: why), `replica_succeeded`;
    of the keeper: `host_lost`, `host_silent`, `failure_unhandled` (detail: what failed; run: of the
    controller that did not handle it), and `mesh_` or `job_` with a state.
    `rank` is None where the event is not one rank's.
    """

    seq: int
    at: float
    kind: str
    run: str = ""
    rank: int | None = None
    pid: int | None = None
    exit: Exit | None = None
    detail: str = ""
    note: ReplicaNote | None = None
    slow: Slowness | None = None


@dataclass(frozen=True, slots=True)
class OutputSlice:
    """Bytes of one rank's output. Offsets are logical: the count of bytes the rank ever wrote before them.

    `start` may be later than what was asked for, where bytes fell out of the cap; `next` is where to go on.
    `gap_*` tell the middle that fell out (a half-open range of offsets), all 0 when nothing did.
    """

    rank: int
    start: int
    data: bytes
    next: int
    size: int
    ended: bool
    gap_start: int = 0
    gap_end: int = 0
    gap_lines: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python (or native) frame of a stack."""

    function: str
    file: str
    line: int
    locals: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CallWait:
    """A call of actors whose answer is awaited: `workers.step`, and the procs that have not answered."""

    call: str
    procs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """Frames innermost first. A task is told in the same way, with its name: its frames are those of its
    await chain. `waits` is what its innermost frame awaits.
    """

    thread: str
    frames: tuple[Frame, ...]
    active: bool = False
    owns_gil: bool = False
    main: bool = False
    waits: CallWait | None = None


@dataclass(frozen=True, slots=True)
class ServedNote:
    """A call that a proc has not answered: `Stage.step`, and the node of its sender.

    `waiting`: it has not begun; `main`: the main thread runs it, for `for_s`; `task`: it is async, and where
    it is, is in `stack` unless the loop is at work on it now.
    """

    call: str
    state: Literal["waiting", "main", "task"]
    sender: str
    for_s: float = 0.0
    stack: ThreadStack | None = None


@dataclass(frozen=True, slots=True)
class Inside:
    """What a process of the actor runtime tells of itself, which its threads' stacks do not show.

    `node` names it to others. `main` is what the main thread waits for; `calls` is what it is to do for
    others, empty in a program; `tasks` are the user's asyncio tasks, the main one first, without those of
    `calls`.
    """

    node: str
    main: CallWait | None = None
    calls: tuple[ServedNote, ...] = ()
    tasks: tuple[ThreadStack, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """Stacks of one process of a rank: the rank itself, or a Python child of it (`child_of` its rank's pid).

    `source` says who dumped: `py-spy`, or `in-process` where ptrace was denied. `error` is set when neither
    could; `os_state` is the kernel's state letter (R, S, D, T, Z).

    Of a proc that a run has spawned, `procs` names its mesh of procs (its name and a token, `workers-1f2a3c`)
    and `rank` is its rank there. `inside` is what a process with actors told itself, if it could.
    """

    rank: int
    host: int
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    child_of: int | None = None
    command: str = ""
    source: str = "py-spy"
    os_state: str = ""
    error: str = ""
    note: str = ""
    procs: str = ""
    inside: Inside | None = None
