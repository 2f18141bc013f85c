"""Where hosts have the client's directories, who feeds whom, and what that makes of a plan. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from .errors import InvalidArgument
from .paths import MeshPaths
from .records import HostPlan, MeshSpec, MountSpec, ProcessPlan

__all__ = [
    "agent_workspace",
    "check_place",
    "has_own_mounts",
    "moved",
    "own_place",
    "parents_of",
    "place_on",
    "workspace_of",
]

_FED_BY_CLIENT = 2
_SEARCHED = ("PATH", "PYTHONPATH")
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/usr", "/run", "/var")


def workspace_of(spec: MeshSpec) -> MountSpec:
    """The workspace as a mount like others."""
    return MountSpec("", spec.workspace, spec.workspace, spec.workspace_mode)


def has_own_mounts(spec: MeshSpec) -> bool:
    """Whether what is mounted on a host is seen there alone."""
    return spec.options.get("isolation") == "namespaces"


def own_place(mount: MountSpec, paths: MeshPaths, host: int) -> str:
    """A directory of that host alone."""
    below = ("shown", mount.mount) if mount.mount else ("workspace",)
    return str(paths.host(host).joinpath(*below))


def place_on(spec: MeshSpec, mount: MountSpec, mode: str, paths: MeshPaths, host: int) -> str:
    """Its own path, where it is shared or the host has mounts of its own; else one of that host alone."""
    if mode == "shared" or has_own_mounts(spec):
        return mount.path
    return own_place(mount, paths, host)


def agent_workspace(spec: MeshSpec, paths: MeshPaths, host: int) -> str:
    """Where relative paths of a host begin. With `auto`, a host of this machine sees the directory itself."""
    mode = "shared" if spec.workspace_mode == "auto" else spec.workspace_mode
    return place_on(spec, workspace_of(spec), mode, paths, host)


def parents_of(host: int) -> tuple[int, ...]:
    """Whom a host asks for bytes before the client: a tree of hosts, each of which serves two."""
    return () if host < _FED_BY_CLIENT else ((host - _FED_BY_CLIENT) // 2,)


def check_place(path: str, needed: Iterable[str]) -> None:
    """Whether something may be mounted over `path` on a host.

    Args:
        needed: what the host must go on seeing as it is.

    Raises:
        InvalidArgument: invalid_path.
    """
    for one in (*_SYSTEM, *filter(None, needed)):
        if is_at_or_below(one, path):
            raise InvalidArgument(
                "invalid_path",
                f"a mount at {path} would hide {one}, which hosts need",
                "Name a path that holds nothing of the system's, of Python's or of Milkweed's state.",
            )


def is_at_or_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def moved(plan: HostPlan, source: str, there: str) -> HostPlan:
    """The plan for a host that has a directory in another place."""
    if source == there:
        return plan

    def path(text: str) -> str:
        return there + text[len(source) :] if is_at_or_below(text, source) else text

    def process(one: ProcessPlan) -> ProcessPlan:
        env = {
            name: os.pathsep.join(map(path, value.split(os.pathsep))) if name in _SEARCHED else value
            for name, value in one.env.items()
        }
        return replace(one, argv=(*map(path, one.argv[:1]), *one.argv[1:]), env=env, cwd=path(one.cwd))

    return replace(plan, processes=tuple(map(process, plan.processes)), interpreter=path(plan.interpreter))
