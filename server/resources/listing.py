"""What `resources/list` names: live meshes, their latest runs, profiles, transcripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio.to_thread
import mcp_types as types

from ..transcripts.library import Library
from .addresses import address_of

if TYPE_CHECKING:
    from pathlib import Path

    from ...runtime.client import Meshes
    from ...runtime.client.profile_files import ProfileFile
    from ...runtime.records import MeshView, RunView

__all__ = ["list_resources", "profile_type"]

_RUNS = 20
_PROFILES = 100
_TYPES = {".svg": "image/svg+xml", ".json": "application/json", ".gz": "application/gzip"}
_COMMAND = 80


async def list_resources(meshes: Meshes, library: Library) -> list[types.Resource]:
    """As the index has it: no mesh is asked, so that a lost one delays nobody."""
    live = meshes.known()
    profiles = await meshes.profiles(_PROFILES)
    names = await anyio.to_thread.run_sync(library.names, [mesh.spec.workspace for mesh in live])
    return [
        *(resource for mesh in live for resource in _of_mesh(mesh)),
        *(_of_run(run) for mesh in live for run in meshes.known_runs(mesh.mesh, _RUNS)),
        *map(_of_profile, profiles),
        *map(_of_transcript, names),
    ]


def _of_mesh(mesh: MeshView) -> Iterator[types.Resource]:
    yield types.Resource(
        name=mesh.mesh,
        uri=address_of("mesh", mesh=mesh.mesh),
        mime_type="application/json",
        description=f"{mesh.state}; {mesh.spec.hosts} hosts x {mesh.spec.procs_per_host} procs",
    )
    yield types.Resource(
        name=f"{mesh.mesh} events", uri=address_of("events", mesh=mesh.mesh), mime_type="text/plain"
    )


def _of_run(run: RunView) -> types.Resource:
    return types.Resource(
        name=run.run,
        uri=address_of("run", run=run.run),
        mime_type="application/json",
        description=f"{run.state}; {run.command[:_COMMAND]}",
    )


def _of_profile(one: ProfileFile) -> types.Resource:
    return types.Resource(
        name=one.name,
        uri=address_of("profile", mesh=one.mesh, file=one.name),
        mime_type=profile_type(one.path),
        size=one.size,
    )


def _of_transcript(name: str) -> types.Resource:
    return types.Resource(name=name, uri=address_of("transcript", name=name), mime_type="text/markdown")


def profile_type(path: Path) -> str:
    return _TYPES.get(path.suffix, "application/octet-stream")
