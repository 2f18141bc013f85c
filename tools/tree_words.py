"""How hosts have the client's directories, in words. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from ..runtime.mesh import format_ranks
from ..runtime.names import printable
from ..runtime.records import HostCopies, MeshSpec, MountView, ShownTree, TreeView
from ..runtime.tree_places import has_own_mounts
from .words import clip

__all__ = [
    "host_copy_words",
    "how_planned",
    "left_out_words",
    "mode_words",
    "mount_line",
    "path_words",
    "warnings_of",
]

K = TypeVar("K", bound=Hashable)

_MOST_NAMED = 4
_COPIES_SHOWN = 5
_HOW = {
    "shared": "as it is",
    "mount": "through a mount, live",
    "copy": "as a copy that is kept up",
    "auto": "as it is where they see it themselves, else through a mount, else as a copy",
}


def how_planned(spec: MeshSpec) -> str:
    """What a dry run says."""
    apart = spec.workspace_mode == "auto" and has_own_mounts(spec)
    how = "through a mount, live, else as a copy" if apart else _HOW[spec.workspace_mode]
    return f"hosts see {spec.workspace} {how} (workspace_mode {spec.workspace_mode})"


def mode_words(view: TreeView, wanted: str) -> str:
    """shared, mount or copy; which on which hosts, where they differ; what was wanted, while none has it."""
    modes = _grouped((tree.mode, tree.host) for tree in view.hosts if tree.mode)
    if len(modes) < 2:
        return next(iter(modes), wanted)
    return ", ".join(f"{mode} on hosts {format_ranks(hosts)}" for mode, hosts in modes.items())


def path_words(view: TreeView, wanted: str) -> str:
    """Where it is; of hosts that have it in different places, the first one's."""
    paths = _grouped((tree.path, tree.host) for tree in view.hosts if tree.path)
    if len(paths) < 2:
        return next(iter(paths), wanted)
    return f"{next(iter(paths))} on host {view.hosts[0].host}, and so on"


def warnings_of(view: TreeView, what: str) -> list[str]:
    """A sentence for each reason why hosts do not have it, or have no mount though one was wanted."""
    without = _grouped(((tree.problem, tree.mend), tree.host) for tree in view.hosts if tree.problem)
    copied = _grouped(((tree.why, tree.mend), tree.host) for tree in view.hosts if _is_second_best(tree))
    return [
        f"{_who(hosts, 'does not have', 'do not have')} {what}: {_and_so(problem, mend)}"
        for (problem, mend), hosts in without.items()
    ] + [
        f"{_who(hosts, 'has', 'have')} a copy of {what}: {_and_so(why, mend)}"
        for (why, mend), hosts in copied.items()
    ]


def _who(hosts: list[int], one: str, several: str) -> str:
    return f"host {hosts[0]} {one}" if len(hosts) == 1 else f"hosts {format_ranks(hosts)} {several}"


def _and_so(problem: str, mend: str) -> str:
    return f"{problem.rstrip('.')}. {mend}" if mend else problem


def _is_second_best(tree: ShownTree) -> bool:
    return tree.mode == "copy" and bool(tree.mend) and not tree.problem and "asked for" not in tree.why


def left_out_words(view: TreeView, most: int) -> str:
    """What hosts are not shown, the largest first; empty: nothing."""
    found = sorted(view.left_out, key=lambda one: -one.bytes)
    named = [
        f"{one.rule}: {one.files} files, {max(0, one.bytes) / 1e6:.1f} MB" for one in found[:_MOST_NAMED]
    ]
    more = [f"{len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
    return clip("; ".join(named + more), most)


def mount_line(view: MountView) -> str:
    """One mount of a mesh in its status."""
    spec, tree = view.spec, view.tree
    if spec.mode == "gather":
        problems = "".join(f"; {warning}" for warning in warnings_of(tree, "it"))
        hosts = format_ranks(host.host for host in tree.hosts)
        return f"{spec.mount}: {printable(spec.source)} of hosts {hosts} at {spec.path}/HOST{problems}"
    path = path_words(tree, spec.path)
    where = spec.source if path == spec.source else f"{spec.source} at {path}"
    revision = f", revision {tree.revision}" if tree.revision else ""
    problems = "".join(f"; {warning}" for warning in warnings_of(tree, "it"))
    return f"{spec.mount}: {where}, {mode_words(tree, spec.mode)}{revision}{problems}"


def _grouped(pairs: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    groups: dict[K, list[int]] = {}
    for key, host in pairs:
        groups.setdefault(key, []).append(host)
    return groups


def host_copy_words(copies: Sequence[HostCopies]) -> list[str]:
    """What the client's edits have put aside on hosts, a line a file; a few, then their number."""
    hosts: dict[tuple[str, str], list[int]] = {}
    for one in copies:
        for file in one.files:
            hosts.setdefault(file, []).append(one.host)
    lines = [_host_copy_line(path, kept, whose) for (path, kept), whose in sorted(hosts.items())]
    more = len(lines) - _COPIES_SHOWN
    return [*lines[:_COPIES_SHOWN], *([f"and {more} more files"] if more > 0 else [])]


def _host_copy_line(path: str, kept: str, hosts: Sequence[int]) -> str:
    who = f"host{'s' if len(hosts) > 1 else ''} {format_ranks(hosts)}"
    if not kept:
        return f"{path} was edited here and removed on {who}: yours is there again"
    return f"{path} was edited here and written on {who}: yours is there, the host's is {kept}"
