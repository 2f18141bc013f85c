"""The toolset `mesh`: hosts for a lease of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..runtime.errors import Conflict, InvalidArgument, NotFound
from ..runtime.mesh import format_ranks
from ..runtime.records import HostView, MeshSpec, MeshView
from .arguments import Hosts, MeshId, Why
from .check_outcome import describe_check
from .confirming import HAS_CHANGED, PLAN_S, Confirm, confirmed
from .device_words import describe_devices
from .directories import local_directory
from .events import fold_events
from .job_outcome import describe_job_item
from .losses import Loss, describe_held, loss_of
from .outcome import describe_item
from .proc_outcome import describe_procs
from .registry import Call, tool
from .results import (
    CheckResult,
    HostItem,
    MeshItem,
    MeshList,
    MeshResult,
    MeshStatus,
    ReleaseResult,
    SchedulerItem,
    SchedulerList,
    bounded,
)
from .selection import select_hosts
from .tree_words import how_planned, left_out_words, mode_words, mount_line, warnings_of
from .words import clip, counted, duration_in_words, size_in_words

if TYPE_CHECKING:
    from ..runtime.keeper.holding_control import KeptFiles
    from ..runtime.keeper.mesh_keeper import Released
    from ..runtime.schedulers import AllocationPlan

__all__ = [
    "allocate_mesh",
    "check_mesh",
    "extend_lease",
    "list_meshes",
    "list_schedulers",
    "mesh_status",
    "release_mesh",
]

LEASE_MINUTES_MAX = 7 * 24 * 60
ALLOCATE_WAIT_S = 30.0
_LIST_MAX = 20
_EVENTS_READ = 200
_HOSTS_SHOWN, _JOBS_SHOWN, _RUNS_SHOWN, _EVENTS_SHOWN = 8, 3, 5, 10
_PROCS_SHOWN = 6
_MOUNTS_SHOWN = 8
_DEVICES_SHOWN = 10
_SURVEY_S = 2.0
_NOT_KEPT_SHOWN = 5
_SCRIPT_SHOWN = 4000

_WRITES_ON = "Where a run writes on, cancel_run ends it first."
_RELEASED_BEFORE = "it was released before"


@tool("mesh", read_only=True)
async def list_schedulers(call: Call) -> SchedulerList:
    """What can be had here: schedulers, whether each is available, hosts, devices, limits, expected wait."""
    return SchedulerList(
        schedulers=[
            SchedulerItem(
                scheduler=view.name,
                available=view.available,
                reason=view.reason,
                hosts=view.hosts,
                devices=view.devices,
                limits=view.limits,
                expected_wait_s=view.expected_wait_s,
            )
            for view in await call.meshes.schedulers()
        ]
    )


@tool("mesh", idempotent=True)
async def allocate_mesh(
    call: Call,
    name: Annotated[
        str, Field(pattern=r"^[a-z0-9-]{1,32}$", description="lower-case letters, digits, hyphens")
    ],
    hosts: Annotated[int, Field(ge=1, le=1024), Why("one keeper holds at most 1024 hosts")] = 1,
    procs_per_host: Annotated[
        int,
        Field(ge=1, le=256, description="ranks on each host, one a GPU as a rule"),
        Why("a host holds at most 256"),
    ] = 1,
    scheduler: Annotated[str, Field(description="from list_schedulers")] = "local",
    engine: Annotated[str, Field(description="auto or embedded")] = "auto",
    workspace: Annotated[
        str | None,
        Field(description="local directory that hosts see; default: the server's working directory"),
    ] = None,
    workspace_mode: Annotated[
        Literal["auto", "shared", "mount", "copy"],
        Field(
            description="shared: hosts see it themselves; mount: live, what they write stays on each; copy:"
            " kept up; auto: the first of these that can be"
        ),
    ] = "auto",
    lease_minutes: Annotated[
        float,
        Field(gt=0, le=LEASE_MINUTES_MAX, description="hosts are given back after it"),
        Why("7 days at most"),
    ] = 60.0,
    options: Annotated[
        dict[str, str] | None,
        Field(
            description='local: {"isolation": "namespaces"} gives each host its own network; slurm:'
            ' {"partition": "gpu", "gpus_per_node": "8", "requeue": "yes"}, more from list_schedulers'
        ),
    ] = None,
    dry_run: Annotated[bool, Field(description="only say what would be started")] = False,
) -> MeshResult:
    """Allocates hosts and starts an agent on each. Safe to repeat: a live mesh of this name and these
    arguments is answered as it is; with other arguments it is refused (name_in_use).

    Answers when the hosts are ready, with state queued where they are waited for (the lease begins when they
    come), or starting after 30 s. scheduler local makes hosts of this machine: with hosts=4 it acts as four.
    """
    spec = MeshSpec(
        name=_check_name(name),
        hosts=hosts,
        procs_per_host=procs_per_host,
        scheduler=scheduler,
        engine=_check_engine(engine),
        workspace=local_directory(workspace, "workspace"),
        workspace_mode=workspace_mode,
        lease_minutes=lease_minutes,
        options=options or {},
    )
    if dry_run:
        return _plan(spec, await call.meshes.plan(spec), await call.meshes.list())
    await call.report(0, None, f"allocating {hosts} hosts")
    mesh = await call.meshes.allocate(spec, wait_s=ALLOCATE_WAIT_S)
    return describe_mesh(await mesh.view())


@tool("mesh", read_only=True)
async def list_meshes(call: Call) -> MeshList:
    """Meshes that are alive, with the time left of their leases."""
    views = await call.meshes.list()
    shown = views[:_LIST_MAX]
    return bounded(
        lambda share: MeshList(
            meshes=[_describe_item(view, share) for view in shown],
            more=len(views) - len(shown),
            next="" if shown else "allocate_mesh gives one.",
        )
    )


@tool("mesh", read_only=True)
async def mesh_status(call: Call, mesh: MeshId) -> MeshStatus:
    """One mesh in detail: state of its hosts, devices and the ranks on them, last runs and events, lease."""
    found = await call.meshes.get(mesh)
    view = await found.view()
    runs = sorted(await found.runs(), key=lambda run: run.created_at, reverse=True)
    jobs = sorted(await found.jobs(), key=lambda job: job.created_at, reverse=True)
    procs = await found.procs()
    held = describe_held(await found.holdings(_SURVEY_S))
    devices = describe_devices(await found.devices(), found.id)
    events = fold_events(await found.events(_EVENTS_READ))
    troubled_first = sorted(view.hosts, key=lambda host: (host.state == "ready", host.host))
    now = time.time()
    return bounded(
        lambda share: MeshStatus(
            **_fields(view, share),
            hosts_by_state=_hosts_by_state(view.hosts, share),
            host_list=[_describe_host(host, share) for host in troubled_first[:_HOSTS_SHOWN]],
            jobs=[describe_job_item(job, now, share) for job in jobs[:_JOBS_SHOWN]],
            runs=[describe_item(run, now, share) for run in runs[:_RUNS_SHOWN]],
            devices=[clip(line, int(300 * share)) for line in devices[:_DEVICES_SHOWN]],
            mounts=[clip(mount_line(one), int(400 * share)) for one in view.mounts[:_MOUNTS_SHOWN]],
            written=[clip(line, int(200 * share)) for line in held[:_HOSTS_SHOWN]],
            procs=[clip(line, int(300 * share)) for line in describe_procs(procs, now)[:_PROCS_SHOWN]],
            events=[clip(event, int(200 * share)) for event in events[-_EVENTS_SHOWN:]],
        )
    )


@tool("mesh", read_only=True)
async def check_mesh(call: Call, mesh: MeshId, hosts: Hosts = None) -> CheckResult:
    """Whether hosts are fit: devices and who uses them, clocks, differing environments, disks, RDMA, memlock,
    /dev/shm; reads within and between hosts (the transport really used, its speed, why nothing better) and an
    all-reduce. Tells what is wrong and what mends it. Takes seconds (64 hosts: half a minute), with load."""
    found = await call.meshes.get(mesh)
    chosen = select_hosts(hosts, (await found.view()).spec.hosts)
    await call.report(0, None, f"checking hosts {format_ranks(chosen)}")
    return describe_check(found.id, await found.check(hosts=chosen))


@tool("mesh")
async def extend_lease(
    call: Call,
    mesh: MeshId,
    minutes: Annotated[
        float,
        Field(
            gt=0,
            le=LEASE_MINUTES_MAX,
            description="by how much later the lease ends; 7 days from now at most",
        ),
    ],
) -> MeshResult:
    """Gives a mesh more time before its hosts are given back."""
    found = await call.meshes.get(mesh)
    return describe_mesh(await found.extend_lease(minutes))


@tool("mesh", destructive=True, idempotent=True)
async def release_mesh(call: Call, mesh: MeshId, confirm: Confirm = None) -> ReleaseResult:
    """Ends every run of a mesh and gives its hosts back. Output of its runs stays readable, and what a run's
    options.keep named is kept. Other files that only its hosts have are lost: where these are checkpoints or
    more than 1 GB, nothing is done until the call is repeated with the plan that it answers."""
    try:
        found = await call.meshes.get(mesh)
    except NotFound:
        if (before := await _last_of_name(call, mesh)) is None:
            raise
        return _released_before(before)
    if (view := await found.view()).state == "released":
        return _released_before(view)
    loss = loss_of(await found.holdings())
    if loss.is_to_be_confirmed:
        plan, why_not = confirmed(call, "release_mesh", {"mesh": found.id}, loss.state, confirm)
        if plan:
            return _not_released(found.id, loss, plan, why_not)
    await call.report(0, None, f"releasing {found.id}")
    try:
        released = await found.release()
    except Conflict as error:
        if error.code != "mesh_released":
            raise
        return ReleaseResult(mesh=found.id, reason="another call released it at the same time")
    return _released(released, loss)


def _released_before(view: MeshView) -> ReleaseResult:
    what = clip(view.end_words, 500)
    return ReleaseResult(mesh=view.mesh, reason=f"{_RELEASED_BEFORE}: {what}" if what else _RELEASED_BEFORE)


def _not_released(mesh: str, loss: Loss, plan: str, why_not: str) -> ReleaseResult:
    what = f"{size_in_words(loss.bytes)} that only its hosts have would be lost"
    return ReleaseResult(
        mesh=mesh,
        state="not_released",
        reason=f"{why_not}; {what}" if why_not else what,
        would_lose=[clip(line, 300) for line in loss.lines],
        confirm=plan,
        next=(f"{_WRITES_ON} " if why_not == HAS_CHANGED else "")
        + f"fetch_files(mesh={mesh!r}, path=..., destination=...) keeps them (what was fetched is counted"
        f" here too); release_mesh(mesh={mesh!r}, confirm={plan!r}) within {PLAN_S / 60:.0f} minutes loses"
        " them.",
    )


def _released(released: Released, loss: Loss) -> ReleaseResult:
    if not released.is_over:
        return ReleaseResult(
            mesh=released.mesh,
            state="releasing",
            reason="its work was ended; files are being kept",
            next=f"release_mesh(mesh={released.mesh!r}) again tells when it is over.",
        )
    kept = released.kept
    what = (
        f"{counted(kept.files, 'file')}, {size_in_words(kept.bytes)}, in {kept.directory}"
        if kept.files
        else ""
    )
    return ReleaseResult(
        mesh=released.mesh,
        runs_ended=list(released.runs_ended[:50]),
        jobs_ended=list(released.jobs_ended[:20]),
        processes_ended=released.processes_ended,
        unmounted_in_use=[clip(user, 200) for user in released.in_mounts[:10]],
        lost=f"{size_in_words(loss.bytes)}: {clip('; '.join(loss.lines), 600)}" if loss.bytes else "",
        kept=what,
        not_kept=_not_kept(kept),
        output_directory=released.output_directory,
        next=f"read_run_output(run={released.runs_ended[0]!r}) still works." if released.runs_ended else "",
    )


def _not_kept(kept: KeptFiles) -> list[str]:
    """A few in words, then how many more."""
    more = len(kept.failed[_NOT_KEPT_SHOWN:]) + kept.more
    lines = [clip(why, 500) for why in kept.failed[:_NOT_KEPT_SHOWN]]
    return [*lines, *([f"and {more:,} more files"] if more else [])]


async def _last_of_name(call: Call, name: str) -> MeshView | None:
    """The mesh that had this name last, of those that were released."""
    every = await call.meshes.list(released=True)
    return next((view for view in reversed(every) if view.spec.name == name), None)


def describe_mesh(view: MeshView) -> MeshResult:
    return bounded(lambda share: MeshResult(**_fields(view, share)))


def _describe_item(view: MeshView, share: float) -> MeshItem:
    return MeshItem(
        mesh=view.mesh,
        state=view.state,
        reason=clip(_reason(view), int(120 * share)),
        hosts=view.spec.hosts,
        procs_per_host=view.spec.procs_per_host,
        scheduler=view.spec.scheduler,
        workspace=clip(view.spec.workspace, int(120 * share)),
        lease_left_s=round(view.lease_left_s),
        warnings=[clip(warning, int(200 * share)) for warning in view.warnings],
    )


def _describe_host(host: HostView, share: float) -> HostItem:
    return HostItem(
        host=host.host,
        name=clip(host.name, 64),
        address=host.address,
        state=host.state,
        reason=clip(host.reason, int(160 * share)),
    )


def _fields(view: MeshView, share: float) -> dict[str, Any]:
    spec = view.spec
    warnings = (*warnings_of(view.workspace, "the workspace"), *view.warnings)
    return {
        "mesh": view.mesh,
        "state": view.state,
        "reason": clip(_reason(view), int(500 * share)),
        "hosts": spec.hosts,
        "procs_per_host": spec.procs_per_host,
        "world_size": spec.world_size,
        "scheduler": spec.scheduler,
        "engine": spec.engine,
        "workspace": spec.workspace,
        "workspace_mode": mode_words(view.workspace, spec.workspace_mode),
        "workspace_revision": str(view.workspace.revision or ""),
        "workspace_left_out": left_out_words(view.workspace, int(300 * share)),
        "lease_left_s": round(view.lease_left_s),
        "warnings": [clip(warning, int(300 * share)) for warning in warnings[:5]],
        "next": _next(view),
    }


def _reason(view: MeshView) -> str:
    if view.state != "queued" or view.expected_start_at is None:
        return view.reason
    left = view.expected_start_at - time.time()
    return f"{view.reason}; expected to start {f'in {duration_in_words(left)}' if left > 0 else 'any moment'}"


def _next(view: MeshView) -> str:
    if view.state == "released":
        return "allocate_mesh gives a new one."
    if view.state == "queued":
        return (
            f"mesh_status(mesh={view.mesh!r}) from time to time: it goes on by itself;"
            f" release_mesh(mesh={view.mesh!r}) takes it out of the queue."
        )
    if view.state == "starting":
        return f"mesh_status(mesh={view.mesh!r}) until it is ready."
    if view.lease_left_s < 300:
        return f"extend_lease(mesh={view.mesh!r}, minutes=60): the lease ends soon."
    if view.state == "degraded" and all(host.state == "ready" for host in view.hosts):
        return (
            "Its hosts are well: read_run_output of the run that did not handle a failure, and cancel_run if"
            " it is of no use. The mesh is ready again when that has ended."
        )
    if view.state == "degraded":
        return f"run_on_mesh with ranks on the hosts that are left, or release_mesh(mesh={view.mesh!r})."
    if view.workspace.hosts and all(tree.problem and not tree.mode for tree in view.workspace.hosts):
        return (
            f"Runs are refused without the workspace: release_mesh(mesh={view.mesh!r}), mend what warnings"
            " say and allocate again, or with another workspace_mode."
        )
    return f"run_on_mesh(mesh={view.mesh!r}, command=...)."


def _hosts_by_state(hosts: tuple[HostView, ...], share: float) -> dict[str, str]:
    states: dict[str, list[int]] = {}
    for host in hosts:
        states.setdefault(host.state, []).append(host.host)
    return {state: clip(format_ranks(members), int(300 * share)) for state, members in states.items()}


def _plan(spec: MeshSpec, plan: AllocationPlan, live: tuple[MeshView, ...]) -> MeshResult:
    same = next((view.mesh for view in live if view.spec == spec), "")
    return MeshResult(
        mesh="",
        state="planned",
        reason="dry run: nothing was started",
        hosts=spec.hosts,
        procs_per_host=spec.procs_per_host,
        world_size=spec.world_size,
        scheduler=spec.scheduler,
        engine=spec.engine,
        workspace=spec.workspace,
        workspace_mode=spec.workspace_mode,
        lease_left_s=spec.lease_minutes * 60,
        would_start=[
            f"{spec.hosts} host agents by scheduler {spec.scheduler}, {spec.procs_per_host} ranks on each",
            how_planned(spec),
        ],
        script=clip(plan.script, _SCRIPT_SHOWN),
        warnings=[
            *([f"{same} is live with these arguments: the call would answer with it"] if same else []),
            *(clip(warning, 300) for warning in plan.warnings[:5]),
        ],
        next="The same call without dry_run.",
    )


def _check_name(name: str) -> str:
    if name.startswith(("mesh-", "run-", "job-", "-")):
        raise InvalidArgument(
            "invalid_argument",
            f"the name {name!r} looks like an id",
            f"Try {name.partition('-')[2] or 'demo'!r}.",
        )
    return name


def _check_engine(engine: str) -> str:
    if engine in ("auto", "embedded"):
        return "embedded"
    what = "the monarch engine is not built in yet" if engine == "monarch" else f"no engine {engine[:60]!r}"
    raise InvalidArgument("unsupported", f"{what}; engines: auto, embedded", "Leave engine out.")
