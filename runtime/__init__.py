"""The runtime library: meshes of hosts, runs on them, procs and actors.

    from milkweed.runtime import Actor, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        async def step(self, batch) -> float: ...

    procs = await this_host().spawn_procs(per_host={"gpus": 8})
    trainers = await procs.spawn("trainers", Trainer)
    losses = await trainers.step.call(batch)        # one value or one error a rank

Hosts of an allocation, and runs of commands on them:

    from milkweed.runtime import JobRequest, MeshSpec, RunRequest, open_meshes

    async with open_meshes() as meshes:
        mesh = await meshes.allocate(MeshSpec("demo", hosts=2, procs_per_host=2, workspace="/home/me/demo"))
        run = await mesh.start_run(RunRequest(argv=("python", "train.py")))
        job = await mesh.start_job(JobRequest(argv=("python", "train.py"), replicas=4))

Names are loaded when they are first used, so that a small process pays for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .actor import Actor, endpoint
    from .client import Mesh, Meshes, open_meshes
    from .errors import ActorError, MeshError, MilkweedError
    from .job_records import JobRequest, JobView
    from .memory import RDMAAction, RDMABuffer, Received
    from .meshes import (
        ActorMesh,
        Failed,
        HostMesh,
        ProcMesh,
        Reduced,
        ValueMesh,
        attach,
        broadcast_buffer,
        this_host,
        this_proc,
    )
    from .node import Future, on_unhandled
    from .proc import current_rank, current_size
    from .records import MeshSpec, MeshView, RunRequest, RunView
    from .supervision import Failure, Restart

__all__ = [
    "Actor",
    "ActorError",
    "ActorMesh",
    "Failed",
    "Failure",
    "Future",
    "HostMesh",
    "JobRequest",
    "JobView",
    "Mesh",
    "MeshError",
    "MeshSpec",
    "MeshView",
    "Meshes",
    "MilkweedError",
    "ProcMesh",
    "RDMAAction",
    "RDMABuffer",
    "Received",
    "Reduced",
    "Restart",
    "RunRequest",
    "RunView",
    "ValueMesh",
    "attach",
    "broadcast_buffer",
    "current_rank",
    "current_size",
    "endpoint",
    "on_unhandled",
    "open_meshes",
    "this_host",
    "this_proc",
]

_HOMES = {
    ".actor": ("Actor", "endpoint"),
    ".client": ("Mesh", "Meshes", "open_meshes"),
    ".errors": ("ActorError", "MeshError", "MilkweedError"),
    ".job_records": ("JobRequest", "JobView"),
    ".memory": ("RDMAAction", "RDMABuffer", "Received"),
    ".meshes": (
        "ActorMesh",
        "Failed",
        "HostMesh",
        "ProcMesh",
        "Reduced",
        "ValueMesh",
        "attach",
        "broadcast_buffer",
        "this_host",
        "this_proc",
    ),
    ".node": ("Future", "on_unhandled"),
    ".proc": ("current_rank", "current_size"),
    ".records": ("MeshSpec", "MeshView", "RunRequest", "RunView"),
    ".supervision": ("Failure", "Restart"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
