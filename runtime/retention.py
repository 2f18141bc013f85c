"""Forgetting the files of meshes that were released long ago, so that a state directory does not grow for
ever.

Output, in the data directory by then, stays readable for `KEEP_S` after a release, unless all of it is over
`KEEP_BYTES`: then the oldest goes first, but none that is younger than `KEEP_AT_LEAST_S`. What runs asked to
keep is never forgotten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from .paths import MeshPaths
from .removing import files_below, remove_tree

__all__ = ["KEEP_S", "Kept", "forget_old", "to_forget"]

KEEP_S = 14 * 24 * 3600.0
KEEP_AT_LEAST_S = 24 * 3600.0
KEEP_BYTES = 5 * 2**30


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of one released mesh: bytes on disk, and the age in seconds since its keeper's last word."""

    mesh: MeshPaths
    size: int
    age_s: float


def to_forget(kept: Iterable[Kept]) -> Sequence[MeshPaths]:
    """Whose files to remove."""
    total = 0
    gone = []
    for one in sorted(kept, key=lambda one: one.age_s):
        total += one.size
        if one.age_s > KEEP_S or (total > KEEP_BYTES and one.age_s > KEEP_AT_LEAST_S):
            gone.append(one.mesh)
    return gone


def forget_old(meshes: Iterable[MeshPaths]) -> None:
    """Removes what is old among the files of released meshes. Blocking."""
    for mesh in to_forget(kept for one in meshes if (kept := _look_at(one)) is not None):
        with suppress(OSError):
            output = mesh.output.readlink()
            remove_tree(output)
            output.parent.rmdir()  # if nothing else was kept
        remove_tree(mesh.root)


def _look_at(mesh: MeshPaths) -> Kept | None:
    try:
        age = time.time() - mesh.keeper_log.stat().st_mtime
    except OSError:
        return None
    size = 0
    for folder, names in chain(files_below(str(mesh.root)), files_below(str(mesh.output))):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return Kept(mesh, size, age)
