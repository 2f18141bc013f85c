"""Completing what a user types for an argument of a prompt or of a resource's template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio.to_thread
import mcp_types as types

from ..runtime.errors import NotFound
from .explaining import with_meshes

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ..runtime.client import Meshes
    from .opener import Opener
    from .transcripts.library import Library

__all__ = ["Completions", "choose"]

_MOST = 100
_RUNS = 100
_PROFILES = 200


class Completions:
    """Arguments of one name mean one thing everywhere; one without known values has no completions."""

    def __init__(self, library: Library, *, deadline_s: float) -> None:
        self._library = library
        self._deadline_s = deadline_s

    async def complete(
        self, context: ServerRequestContext[Opener], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        given = (params.context.arguments if params.context else None) or {}

        async def work(meshes: Meshes) -> Sequence[str]:
            return await _candidates(meshes, self._library, params.argument.name, given)

        candidates = await with_meshes(context, self._deadline_s, work)
        return types.CompleteResult(completion=choose(candidates, params.argument.value))


def choose(candidates: Iterable[str], value: str) -> types.Completion:
    """Those that begin with what was typed, then those that have it anywhere; each once. Pure."""
    every = list(dict.fromkeys(candidates))
    first = [one for one in every if one.startswith(value)]
    found = [*first, *(one for one in every if value in one and not one.startswith(value))]
    return types.Completion(values=found[:_MOST], total=len(found), has_more=len(found) > _MOST)


async def _candidates(
    meshes: Meshes, library: Library, argument: str, given: Mapping[str, str]
) -> Sequence[str]:
    live = meshes.known()
    match argument:
        case "mesh":
            profiled = [one.mesh for one in await meshes.profiles(_PROFILES)]
            return [mesh.mesh for mesh in live] + profiled
        case "run":
            runs = [run for mesh in live for run in meshes.known_runs(mesh.mesh, _RUNS)]
            return [
                run.run for run in sorted(runs, key=lambda run: (run.ended_at is not None, -run.created_at))
            ]
        case "rank":
            return await _ranks(meshes, given.get("run", ""))
        case "file":
            profiles = await meshes.profiles(_PROFILES)
            return [one.name for one in profiles if given.get("mesh", one.mesh) == one.mesh]
        case "name":
            return await anyio.to_thread.run_sync(library.names, [mesh.spec.workspace for mesh in live])
        case "workspace":
            return [mesh.spec.workspace for mesh in live]
        case _:
            return ()


async def _ranks(meshes: Meshes, run: str) -> list[str]:
    try:
        view = await (await meshes.find_run(run)).run(run)
    except NotFound:
        return []
    return [str(rank.rank) for rank in view.ranks]
