"""Forgetting the files of meshes that were released long ago, so that a state directory does not grow for
ever.

Output stays readable for `KEEP_S` after a release, unless all of it is over `KEEP_BYTES`: then the oldest
goes first, but none that is younger than `KEEP_AT_LEAST_S`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KEEP_S", "Kept", "forget_old", "to_forget"]

KEEP_S = 14 * 24 * 3600.0
KEEP_AT_LEAST_S = 24 * 3600.0
KEEP_BYTES = 5 * 2**30


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of one released mesh: bytes on disk, and the age in seconds since its keeper's last word."""

    directory: Path
    size: int
    age_s: float


def to_forget(kept: Iterable[Kept]) -> Sequence[Path]:
    """Which directories to remove."""
    total = 0
    gone = []
    for one in sorted(kept, key=lambda one: one.age_s):
        total += one.size
        if one.age_s > KEEP_S or (total > KEEP_BYTES and one.age_s > KEEP_AT_LEAST_S):
            gone.append(one.directory)
    return gone


def forget_old(directories: Iterable[Path]) -> None:
    """Removes what is old among the directories of released meshes. Blocking."""
    for directory in to_forget(kept for one in directories if (kept := _look_at(one)) is not None):
        shutil.rmtree(directory, ignore_errors=True)


def _look_at(directory: Path) -> Kept | None:
    try:
        age = time.time() - (directory / "keeper.log").stat().st_mtime
    except OSError:
        return None
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return Kept(directory, size, age)
