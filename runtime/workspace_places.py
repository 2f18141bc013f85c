"""Where hosts have the workspace, who feeds whom, and what that makes of a plan. Pure."""

from __future__ import annotations

import os
from dataclasses import replace

from .paths import MeshPaths
from .records import HostPlan, MeshSpec, ProcessPlan

__all__ = ["moved", "parents_of", "place_on", "wants_source"]

_FED_BY_CLIENT = 2
_SEARCHED = ("PATH", "PYTHONPATH")


def wants_source(spec: MeshSpec) -> bool:
    """Whether hosts may have to be fed from here."""
    return bool(spec.workspace) and spec.workspace_mode != "shared"


def place_on(spec: MeshSpec, paths: MeshPaths, host: int) -> str:
    """The client's own path, where the host has mounts of its own; else one that is no other host's."""
    if spec.workspace_mode == "shared" or spec.options.get("isolation") == "namespaces":
        return spec.workspace
    return str(paths.host(host) / "workspace")


def parents_of(host: int) -> tuple[int, ...]:
    """Whom a host asks for bytes before the client: a tree of hosts, each of which serves two."""
    return () if host < _FED_BY_CLIENT else ((host - _FED_BY_CLIENT) // 2,)


def moved(plan: HostPlan, workspace: str, there: str) -> HostPlan:
    """The plan for a host that has the workspace in another place."""
    if workspace == there:
        return plan

    def path(text: str) -> str:
        inside = text == workspace or text.startswith(workspace + os.sep)
        return there + text[len(workspace) :] if inside else text

    def process(one: ProcessPlan) -> ProcessPlan:
        env = {
            name: os.pathsep.join(map(path, value.split(os.pathsep))) if name in _SEARCHED else value
            for name, value in one.env.items()
        }
        return replace(one, argv=(*map(path, one.argv[:1]), *one.argv[1:]), env=env, cwd=path(one.cwd))

    return replace(plan, processes=tuple(map(process, plan.processes)), interpreter=path(plan.interpreter))
