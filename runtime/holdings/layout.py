"""Where a host keeps what was written on it: directories below its own, found again by whoever sees its disk.

mounts/NAME/shown           the path at which the tree of that name is shown
mounts/NAME/overlay/tree    what was written over it, under the very names
mounts/NAME/copy, copied    where a copy of it lies, and what was copied there: the rest was written
mounts/NAME/bytecode        of what Python runs of it; there where it is mounted, and may be written to
mounts/NAME/scratch/FOLDER  what a folder of it is bound to; FOLDER is its quoted path in the tree
tmp, var-tmp                TMPDIR; /var/tmp of a host with mounts of its own
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

__all__ = ["HostLayout", "MountPlace"]

_NAME_LENGTH = 12


@dataclass(frozen=True, slots=True)
class MountPlace:
    """What belongs to one tree on one host and must not lie in the tree."""

    directory: Path

    @property
    def shown(self) -> str:
        """The path of the tree; empty where that is not known."""
        return self._said("shown")

    @property
    def copy(self) -> str:
        """Where the copy of the tree lies; empty where it is mounted."""
        return self._said("copy")

    def _said(self, name: str) -> str:
        try:
            return os.fsdecode((self.directory / name).read_bytes())
        except OSError:
            return ""

    def make(self, path: str, copy: str = "") -> None:
        """For what is shown at a path; `copy` is where a copy of it lies.

        Raises:
            OSError: the host's directory cannot be written to.
        """
        with suppress(FileExistsError):
            self.directory.mkdir(mode=0o700, parents=True)
        (self.directory / "shown").write_bytes(os.fsencode(path))
        if copy:
            (self.directory / "copy").write_bytes(os.fsencode(copy))

    @property
    def copied(self) -> Path:
        """Says what was copied."""
        return self.directory / "copied"

    @property
    def cache(self) -> Path:
        return self.directory / "cache"

    @property
    def overlay(self) -> Path:
        return self.directory / "overlay"

    @property
    def written(self) -> Path:
        return self.overlay / "tree"

    @property
    def bytecode(self) -> Path:
        """Of no worth to anybody else."""
        return self.directory / "bytecode"

    @property
    def scratch(self) -> Path:
        return self.directory / "scratch"

    def scratch_folder(self, folder: str) -> Path:
        return self.scratch / quote_from_bytes(os.fsencode(folder), safe="")

    def scratch_folders(self) -> Iterator[tuple[str, Path]]:
        """Each folder's path in the tree, and what it is bound to."""
        with suppress(OSError):
            for entry in sorted(self.scratch.iterdir()):
                yield os.fsdecode(unquote_to_bytes(entry.name)), entry


@dataclass(frozen=True, slots=True)
class HostLayout:
    directory: Path

    def mount(self, path: str) -> MountPlace:
        """Of the tree that is shown at a path."""
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:_NAME_LENGTH]
        return MountPlace(self.directory / "mounts" / name)

    def mounts(self) -> Iterator[MountPlace]:
        with suppress(OSError):
            for entry in sorted((self.directory / "mounts").iterdir()):
                yield MountPlace(entry)

    @property
    def temporary(self) -> tuple[tuple[str, Path], ...]:
        """What programs call each, and where it is."""
        own = self.directory / "tmp"
        return (str(own), own), ("/var/tmp", self.directory / "var-tmp")
