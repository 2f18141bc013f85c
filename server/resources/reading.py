"""Reading a resource. What a tool tells too is told by that tool, in the same words."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import anyio.to_thread
import mcp_types as types

from ...runtime.errors import InvalidArgument, NotFound
from ...tools.registry import Answer, Text
from ...tools.verdicts import clean
from .addresses import Address, parse
from .listing import profile_type

if TYPE_CHECKING:
    from ...runtime.client import Meshes
    from ...tools.registry import Call
    from ..transcripts.library import Library

__all__ = ["read_resource"]

_MOST_BYTES = 8 * 1024 * 1024
_OUTPUT_BYTES = 65_536
_EVENTS = 200

Contents = types.TextResourceContents | types.BlobResourceContents


async def read_resource(call: Call, library: Library, uri: str) -> Contents:
    """
    Raises:
        NotFound: resource_not_found; or rank_not_found, mesh_not_found and so on.
        InvalidArgument: resource_too_large. Conflict: run_ended, it has no stacks any more.
    """
    address = parse(uri)
    if address is None:
        raise _not_found(uri)
    if address.kind == "profile":
        return await _profile(call.meshes, uri, address)
    if address.kind == "transcript":
        workspaces = [mesh.spec.workspace for mesh in call.meshes.known()]
        text = await anyio.to_thread.run_sync(library.read, address.names["name"], workspaces)
        return types.TextResourceContents(uri=uri, mime_type="text/markdown", text=clean(text))
    if address.kind == "events":
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text=await _events(call, address))
    answer = await _answer(call, address)
    if isinstance(answer, Text):
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text=clean(answer.text))
    told = json.dumps(answer.content(), ensure_ascii=False, indent=1)
    return types.TextResourceContents(uri=uri, mime_type="application/json", text=clean(told))


async def _answer(call: Call, address: Address) -> Answer:
    from ...tools import debug, mesh, run

    names = address.names
    match address.kind:
        case "mesh":
            return await mesh.mesh_status(call, {"mesh": names["mesh"]})
        case "run":
            return await run.wait_for_run(call, {"run": names["run"], "timeout_s": 0})
        case "stacks":
            return await debug.stack_dump(call, {"target": names["run"]})
        case _:
            if not names["rank"].isdecimal():
                raise NotFound("rank_not_found", f"no rank {names['rank'][:60]!r}", "A rank is a number.")
            asked = {"run": names["run"], "ranks": names["rank"], "max_bytes": _OUTPUT_BYTES}
            return await run.read_run_output(call, asked)


async def _events(call: Call, address: Address) -> str:
    from ...tools.events import fold_events

    mesh = await call.meshes.get(address.names["mesh"])
    return clean("\n".join(fold_events(await mesh.events(_EVENTS)))) or "(nothing happened yet)"


async def _profile(meshes: Meshes, uri: str, address: Address) -> Contents:
    found = await meshes.find_profile(address.names["mesh"], address.names["file"])
    if found is None:
        raise _not_found(uri)
    if found.size > _MOST_BYTES:
        raise InvalidArgument(
            "resource_too_large",
            f"{found.name} has {found.size / 1e6:.0f} MB; at most {_MOST_BYTES >> 20} MiB are sent",
            f"Open {found.path} on the machine of this server.",
        )
    data = await anyio.to_thread.run_sync(found.path.read_bytes)
    kind = profile_type(found.path)
    if kind == "application/gzip":
        return types.BlobResourceContents(uri=uri, mime_type=kind, blob=base64.b64encode(data).decode())
    return types.TextResourceContents(uri=uri, mime_type=kind, text=data.decode("utf-8", "replace"))


def _not_found(uri: str) -> NotFound:
    return NotFound("resource_not_found", f"no resource {uri[:200]!r}", "resources/list names what there is.")
