"""What clients can read beside calling tools: the files that `profile_run` left, as `profile://MESH/FILE`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import anyio.to_thread
import mcp_types as types

from ..runtime.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from ..runtime.client import Meshes
    from ..runtime.client.profile_files import ProfileFile

__all__ = ["SCHEME", "TEMPLATES", "list_resources", "read_resource"]

SCHEME = "profile://"
TEMPLATES = [
    types.ResourceTemplate(
        name="profile",
        title="Profile of a run",
        uri_template=SCHEME + "{mesh}/{file}",
        description="A file that profile_run wrote: a flame graph (SVG), speedscope JSON, or a torch trace.",
    )
]
_MOST = 100
_MOST_BYTES = 8 * 1024 * 1024
_TYPES = {".svg": "image/svg+xml", ".json": "application/json", ".gz": "application/gzip"}


async def list_resources(meshes: Meshes) -> list[types.Resource]:
    """The latest files of all meshes, released ones too."""
    files = await anyio.to_thread.run_sync(meshes.profiles, _MOST)
    return [_describe(one) for one in files]


async def read_resource(meshes: Meshes, uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    """
    Raises:
        NotFound: resource_not_found. InvalidArgument: resource_too_large.
    """
    mesh, slash, name = uri.removeprefix(SCHEME).partition("/")
    found = meshes.find_profile(mesh, name) if uri.startswith(SCHEME) and slash else None
    if found is None:
        raise NotFound(
            "resource_not_found", f"no resource {uri[:200]!r}", "resources/list names what there is."
        )
    if found.size > _MOST_BYTES:
        raise InvalidArgument(
            "resource_too_large",
            f"{found.name} has {found.size / 1e6:.0f} MB; at most {_MOST_BYTES >> 20} MiB are sent",
            f"Open {found.path} on the machine of this server.",
        )
    data = await anyio.to_thread.run_sync(found.path.read_bytes)
    kind = _type_of(found.path)
    if kind == "application/gzip":
        return types.BlobResourceContents(uri=uri, mime_type=kind, blob=base64.b64encode(data).decode())
    return types.TextResourceContents(uri=uri, mime_type=kind, text=data.decode("utf-8", "replace"))


def _describe(one: ProfileFile) -> types.Resource:
    return types.Resource(
        name=one.name,
        uri=f"{SCHEME}{one.mesh}/{one.name}",
        mime_type=_type_of(one.path),
        size=one.size,
    )


def _type_of(path: Path) -> str:
    return _TYPES.get(path.suffix, "application/octet-stream")
