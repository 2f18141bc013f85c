"""Which run a tool is asked about: by its id, or the newest of a mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.errors import InvalidArgument, NotFound
from ..runtime.records import RunView
from .registry import Call

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["find_run", "no_run"]

_RUNS_NAMED = 3


async def find_run(call: Call, target: str) -> tuple[Mesh, RunView | None]:
    """The run of that id, or the newest of a mesh: of those that run, where there are any."""
    if target.startswith("run-"):
        mesh = await call.meshes.find_run(target)
        return mesh, await mesh.run(target)
    if target.startswith("job-"):
        raise await _is_a_job(call, target)
    mesh = await call.meshes.get(target)
    views = await mesh.runs()
    return mesh, max(views, key=lambda view: (view.ended_at is None, view.created_at), default=None)


def no_run(mesh: Mesh) -> NotFound:
    """The error of a mesh that has had none."""
    return NotFound(
        "run_not_found", f"{mesh.id} has had no run", f"run_on_mesh(mesh={mesh.id!r}) starts one."
    )


async def _is_a_job(call: Call, job: str) -> InvalidArgument:
    status = await (await call.meshes.find_job(job)).job(job)
    running = [one for one in status.view.replicas if one.state == "running" and one.run]
    restarted_first = sorted(running, key=lambda one: (-one.attempt, one.replica))
    named = ", ".join(f"{one.run!r} (replica {one.replica})" for one in restarted_first[:_RUNS_NAMED])
    step = f"Name one: {named}." if named else f"None runs: replica_status(job={job!r})."
    return InvalidArgument(
        "invalid_argument", f"{job} is a job; each attempt of its replicas is a run of its own", step
    )
