"""What of the files that only hosts have would be missed. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..tree_places import is_at_or_below
from .records import HeldFile

__all__ = ["KeepRule", "is_checkpoint", "kept_by", "matters"]

_SUFFIXES = frozenset(
    {".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".pkl", ".npz", ".h5", ".onnx", ".msgpack", ".gguf"}
)
_FOLDERS = re.compile(r"(?i)(?:^|[-_.])(?:checkpoints?|ckpts?|snapshots?)(?:$|[-_.0-9])")
_PACKAGES = frozenset({"site-packages", "dist-packages"})


def is_checkpoint(file: HeldFile) -> bool:
    """By its suffix, or by the name of a folder above; what is empty, a cache's or temporary is none, nor is
    a `.pth` of Python's own kind: lines of paths, beside installed packages.

    Suffixes are those of torch.save, torch.distributed.checkpoint, safetensors, Lightning, Keras, JAX, GGUF.
    """
    path = PurePosixPath(file.path)
    if not file.size or file.place == "temporary" or "__pycache__" in path.parts:
        return False
    if path.suffix == ".pth" and path.parent.name in _PACKAGES:
        return False
    return path.suffix.lower() in _SUFFIXES or any(map(_FOLDERS.search, path.parts[:-1]))


@dataclass(frozen=True, slots=True)
class KeepRule:
    """What of a host is to be kept: `patterns` are in the words of the client, who calls `workspace` what is
    at `place` there.
    """

    patterns: tuple[str, ...] = ()
    workspace: str = ""
    place: str = ""

    def here(self, path: str) -> str:
        """What the client calls it."""
        is_there = self.place and is_at_or_below(path, self.place)
        return self.workspace + path[len(self.place) :] if is_there else path

    def keeps(self, path: str) -> bool:
        """Whether a file of the host is to be kept, by the path that its programs know."""
        return kept_by(self.patterns, self.here(path))


def matters(files: Iterable[HeldFile]) -> list[HeldFile]:
    """Checkpoints first, then by size; the order in which what would be lost is told."""
    return sorted(files, key=lambda one: (not is_checkpoint(one), -one.size, one.path))


def kept_by(patterns: Iterable[str], path: str) -> bool:
    """Whether an absolute path matches one of the globs, which are absolute too.

    `*`, `?` and `[...]` stand for parts of one name, `**` for any folders, also none. What matches a folder
    takes everything in it.
    """
    names = _parts(path)
    return any(_matches(_parts(pattern), names) for pattern in patterns)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _matches(parts: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Whether the parts match the path or a folder above it."""
    if not parts:
        return True
    first, *rest = parts
    if first == "**":
        return any(_matches(tuple(rest), names[skip:]) for skip in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], first) and _matches(tuple(rest), names[1:])
