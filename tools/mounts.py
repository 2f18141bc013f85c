"""Tools of the toolset `files` that mount: more of the client's directories on hosts, and theirs here."""

from __future__ import annotations

import os
import shlex
from typing import Annotated, Literal

from pydantic import Field

from ..runtime.errors import InvalidArgument
from ..runtime.mesh import format_ranks
from ..runtime.names import printable, quoted
from ..runtime.records import MountView
from .arguments import Hosts, MeshId
from .directories import local_directory
from .registry import Call, tool
from .results import GatherResult, MountResult, UnmountResult, bounded
from .selection import select_hosts
from .tree_words import left_out_words, mode_words, path_words, warnings_of
from .words import clip

__all__ = ["gather_mount", "mount_directory", "unmount"]

_USERS_SHOWN = 10


@tool("files", idempotent=True)
async def mount_directory(
    call: Call,
    mesh: MeshId,
    source: Annotated[str, Field(min_length=1, description="local directory")],
    path: Annotated[
        str | None, Field(description="where hosts see it, absolute; default: the same path as here")
    ] = None,
    mode: Annotated[
        Literal["auto", "shared", "mount", "copy"], Field(description="as workspace_mode of allocate_mesh")
    ] = "auto",
) -> MountResult:
    """Shows hosts one more directory of this machine (data, tools), live and read-only like the workspace:
    each run sees the edits made before it. Safe to repeat. unmount, or the release, takes it away."""
    directory = local_directory(source, "source")
    place = _check_path(path or directory)
    found = await call.meshes.get(mesh)
    await call.report(0, None, f"mounting {quoted(directory)}")
    view = await found.mount(directory, place, mode)
    return bounded(lambda share: _describe(found.id, view, share))


@tool("files", idempotent=True)
async def gather_mount(
    call: Call,
    mesh: MeshId,
    remote_path: Annotated[
        str, Field(min_length=1, description="of the hosts: absolute, or relative to the workspace")
    ],
    mountpoint: Annotated[str, Field(min_length=1, description="local directory, new or empty")],
    hosts: Hosts = None,
) -> GatherResult:
    """Shows a directory of the hosts on this machine as mountpoint/HOST/..., live and read-only, for local
    programs to read: only what is read is moved. Safe to repeat. unmount, or the release, takes it away."""
    place = _local_path(mountpoint)
    found = await call.meshes.get(mesh)
    chosen = () if hosts is None else select_hosts(hosts, (await found.view()).spec.hosts)
    await call.report(0, None, f"mounting {quoted(remote_path)} of the hosts")
    view = await found.gather(remote_path, place, chosen)
    shown = [host.host for host in view.tree.hosts]
    return bounded(
        lambda share: GatherResult(
            mount=view.spec.mount,
            mesh=found.id,
            remote_path=clip(printable(view.spec.source), 1000),
            mountpoint=view.spec.path,
            hosts=format_ranks(shown),
            warnings=[clip(warning, int(300 * share)) for warning in warnings_of(view.tree, "it")[:5]],
            next=f"ls {shlex.quote(os.path.join(view.spec.path, str(shown[0])))}" if shown else "",
        )
    )


@tool("files", destructive=True)
async def unmount(
    call: Call, mount: Annotated[str, Field(description="id that mount_directory or gather_mount gave")]
) -> UnmountResult:
    """Takes a directory of mount_directory from all hosts, or of gather_mount from here, also from programs
    that use it."""
    found = await call.meshes.find_mount(mount)
    done = await found.unmount(mount)
    return UnmountResult(
        mount=mount,
        mesh=found.id,
        source=done.spec.source,
        in_use=[clip(user, 200) for user in done.in_use[:_USERS_SHOWN]],
    )


def _describe(mesh: str, view: MountView, share: float) -> MountResult:
    spec, tree = view.spec, view.tree
    warnings = warnings_of(tree, "it")
    is_lacking = any(host.problem for host in tree.hosts)
    return MountResult(
        mount=spec.mount,
        mesh=mesh,
        source=spec.source,
        path=path_words(tree, spec.path),
        mode=mode_words(tree, spec.mode),
        revision=str(tree.revision or ""),
        entries=tree.entries,
        left_out=left_out_words(tree, int(300 * share)),
        warnings=[clip(warning, int(300 * share)) for warning in warnings[:5]],
        next=f"unmount(mount={spec.mount!r}), and mend that." if is_lacking else "",
    )


def _local_path(path: str) -> str:
    if "\0" in path:
        raise InvalidArgument(
            "invalid_path", f"mountpoint '{quoted(path)}' is no path", "Name a directory, new or empty."
        )
    return os.path.abspath(os.path.expanduser(path))


def _check_path(path: str) -> str:
    if not os.path.isabs(path):
        raise InvalidArgument(
            "invalid_path", f"path '{quoted(path)}' is not absolute", "Name the path that hosts are to see."
        )
    return os.path.normpath(path)
