"""The toolset `train`: replicas of a training command, restarted when they fail, and curves of metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ..runtime.job_records import JobRequest, JobStatus
from ..runtime.supervision import Restart
from .arguments import JobId, MeshId, Why
from .commands import check_env, check_folders, check_keep, check_launcher, split_command
from .homes import Homes
from .job_outcome import describe_job
from .plotting import plot
from .registry import Call, Text, tool
from .results import JobResult
from .run import WAIT_MAX_S, FileOptions, absolute
from .targets import find_run, no_run

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["plot_metrics", "replica_status", "restart_replica", "start_replicas", "stop_replicas"]

_REPLICAS_MAX = 1024
_ANSWER_S = 3.0


class ReplicaOptions(FileOptions):
    window_s: float = Field(
        default=600.0, gt=0, le=86_400, description="more than max_restarts in it: the replica is given up"
    )
    backoff_s: float = Field(
        default=0.5, ge=0, le=600, description="wait before a restart; doubles with each in a row"
    )
    backoff_max_s: float = Field(default=30.0, ge=0, le=3600)
    warm: bool = Field(
        default=True, description="fork Python from a process with torch imported, where one is ready"
    )


@tool("train", idempotent=True, open_world=True)
async def start_replicas(
    call: Call,
    mesh: MeshId,
    command: Annotated[
        str | list[str],
        Field(description="split like a shell does, run without one; python is the workspace's own"),
    ],
    replicas: Annotated[int, Field(ge=1, le=_REPLICAS_MAX), Why("a mesh has no more hosts")],
    procs_per_replica: Annotated[
        int, Field(ge=1, le=256, description="ranks of each; a replica lies on one host")
    ] = 1,
    max_restarts: Annotated[
        int, Field(ge=0, le=1000, description="of a replica in options.window_s; then it is given up")
    ] = 3,
    env: dict[str, str] | None = None,
    cwd: Annotated[str | None, Field(description="default: the workspace")] = None,
    wait_s: Annotated[
        float,
        Field(ge=0, le=WAIT_MAX_S, description="how long to wait for a failure or the end"),
        Why("no call takes longer"),
    ] = 5.0,
    options: ReplicaOptions | None = None,
) -> JobResult:
    """Starts replicas of a command, groups of ranks that restart as one: when a rank fails, its group is
    ended and started again on its host, the others go on. Restarts need neither this server nor a call. A
    replica that fails too often is given up.

    Ranks are as in run_on_mesh (RANK, WORLD_SIZE, MASTER_PORT of their replica; a new port each attempt) and
    get MILKWEED_REPLICA of MILKWEED_REPLICAS, MILKWEED_ATTEMPT (from 1), MILKWEED_LOCAL_SLOT (place among all
    ranks of the host: choose the device by it). Each attempt is a run, such as run-7qd.2: read_run_output,
    wait_for_run and stack_dump take it. Safe to repeat: the same words while the job runs are that job."""
    argv = split_command(command)
    check_launcher(argv, "spmd")
    environment = check_env(env or {})
    options = options or ReplicaOptions()
    found = await call.meshes.get(mesh)
    directory = await absolute(found, cwd)
    request = JobRequest(
        argv=argv,
        replicas=replicas,
        procs_per_replica=procs_per_replica,
        restart=Restart(
            max_restarts=max_restarts,
            window_s=options.window_s,
            backoff_s=options.backoff_s,
            backoff_max_s=max(options.backoff_s, options.backoff_max_s),
        ),
        env=environment,
        cwd=directory,
        warm=options.warm,
        keep=check_keep(options.keep, directory or (await found.view()).spec.workspace),
        scratch=check_folders(options.scratch),
    )
    started = await found.start_job(request)
    await call.report(0, None, f"{started.job} is running")
    return await _describe(found, await _wait(found, started.job, wait_s))


@tool("train", read_only=True)
async def replica_status(
    call: Call,
    job: JobId,
    wait_s: Annotated[
        float,
        Field(ge=0, le=WAIT_MAX_S, description="wait for the next failure, return or end of a replica"),
        Why("no call takes longer; call again"),
    ] = 0.0,
) -> JobResult:
    """A replica job: its replicas with state, attempt, restarts, runs, pids and last failure. Replicas that
    are alike share an entry, troubled ones come first."""
    found = await call.meshes.find_job(job)
    if wait_s:
        await call.report(0, None, f"waiting for {job}")
    return await _describe(found, await _wait(found, job, wait_s))


@tool("train", destructive=True)
async def restart_replica(
    call: Call, job: JobId, replica: Annotated[int, Field(ge=0, description="its number")]
) -> JobResult:
    """Ends a replica's ranks and starts it again at once, one that was given up too. It does not count as a
    failure."""
    found = await call.meshes.find_job(job)
    return await _describe(found, await found.restart_replica(job, replica), restarted=replica)


@tool("train", destructive=True, idempotent=True)
async def stop_replicas(call: Call, job: JobId) -> JobResult:
    """Ends a replica job: every process of every replica. Output of its runs stays readable."""
    found = await call.meshes.find_job(job)
    return await _describe(found, await found.stop_job(job))


@tool("train", read_only=True)
async def plot_metrics(
    call: Call,
    target: Annotated[str, Field(description="run id; or a mesh, for its newest run")],
    metrics: Annotated[list[str] | None, Field(description="names; default: all that it tells")] = None,
) -> Text:
    """Curves of what a run reports, prints or logs (loss, learning rate, ...), while it runs or when it has
    ended, but before its mesh is released: each metric in a line with its first, lowest and last values, and
    a file to open, an SVG with a panel for each metric and a curve for each rank."""
    mesh, view = await find_run(call, target)
    if view is None:
        raise no_run(mesh)
    await call.report(0, None, f"reading the metrics of {view.run}")
    return Text(await plot(mesh, view, metrics))


async def _wait(mesh: Mesh, job: str, wait_s: float) -> JobStatus:
    return await mesh.job(job, wait_s=min(wait_s, WAIT_MAX_S - _ANSWER_S))


async def _describe(mesh: Mesh, status: JobStatus, *, restarted: int | None = None) -> JobResult:
    at = await mesh.view()
    return describe_job(
        status,
        now=time.time(),
        lease_left_s=at.lease_left_s,
        workspace=at.spec.workspace,
        homes=Homes(at),
        restarted=restarted,
    )
