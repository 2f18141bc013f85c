"""Files that profiles of runs have left, of all meshes: listed, and found by name. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProfileFile", "find_profile", "list_profiles"]


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """`at` is when it was written, wall clock; `size` in bytes."""

    mesh: str
    name: str
    path: Path
    size: int
    at: float


def list_profiles(directories: Iterable[tuple[str, Path]], most: int) -> tuple[ProfileFile, ...]:
    """The latest of the files below each mesh's directory, the newest first."""
    found = []
    for mesh, directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            found += [one for entry in entries if (one := _file(mesh, Path(entry.path))) is not None]
    return tuple(sorted(found, key=lambda one: (-one.at, one.name))[:most])


def find_profile(mesh: str, directory: Path, name: str) -> ProfileFile | None:
    """None where there is no such file; a name with a slash is none."""
    return None if "/" in name else _file(mesh, directory / name)


def _file(mesh: str, path: Path) -> ProfileFile | None:
    if path.name.startswith(".") or path.is_symlink() or not path.is_file():
        return None
    with suppress(OSError):
        status = path.stat()
        return ProfileFile(mesh, path.name, path, status.st_size, status.st_mtime)
    return None
