"""How hosts have the workspace, in words. Pure."""

from __future__ import annotations

from ..runtime.mesh import format_ranks
from ..runtime.records import MeshSpec, WorkspaceView
from .words import clip

__all__ = ["how_seen", "left_out_words", "not_shown"]

_MOST_NAMED = 4


def how_seen(spec: MeshSpec) -> str:
    """What a dry run says."""
    how = {
        "shared": "as it is",
        "mount": "through a mount, live",
        "copy": "as a copy that is kept up",
    }.get(spec.workspace_mode, "in the best way there is")
    return f"hosts see {spec.workspace} {how} (workspace_mode {spec.workspace_mode})"


def not_shown(view: WorkspaceView) -> list[str]:
    """A sentence for each reason why hosts do not have it."""
    by_reason: dict[tuple[str, str], list[int]] = {}
    for tree in view.hosts:
        if tree.problem:
            by_reason.setdefault((tree.problem, tree.mend), []).append(tree.host)
    return [
        f"host {format_ranks(hosts)} does not have the workspace: {problem}{f' ({mend})' if mend else ''}"
        for (problem, mend), hosts in by_reason.items()
    ]


def left_out_words(view: WorkspaceView, most: int) -> str:
    """What hosts are not shown, the largest first; empty: nothing."""
    found = sorted(view.left_out, key=lambda one: -one.bytes)
    named = [
        f"{one.rule}: {one.files} files, {max(0, one.bytes) / 1e6:.1f} MB" for one in found[:_MOST_NAMED]
    ]
    more = [f"{len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
    return clip("; ".join(named + more), most)
