"""The runtime library: meshes of hosts, runs on them, and the actors that serve both.

    from milkweed.runtime import MeshSpec, RunRequest, open_meshes

    async with open_meshes() as meshes:
        mesh = await meshes.allocate(MeshSpec("demo", hosts=2, procs_per_host=2, workspace="/home/me/demo"))
        run = await mesh.start_run(RunRequest(argv=("python", "train.py")))

Names are loaded when they are first used, so that a small process pays for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .actor import Actor, endpoint
    from .client import Mesh, Meshes, open_meshes
    from .errors import MilkweedError
    from .records import MeshSpec, MeshView, RunRequest, RunView

__all__ = [
    "Actor",
    "Mesh",
    "MeshSpec",
    "MeshView",
    "Meshes",
    "MilkweedError",
    "RunRequest",
    "RunView",
    "endpoint",
    "open_meshes",
]

_HOMES = {
    ".actor": ("Actor", "endpoint"),
    ".client": ("Mesh", "Meshes", "open_meshes"),
    ".errors": ("MilkweedError",),
    ".records": ("MeshSpec", "MeshView", "RunRequest", "RunView"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
