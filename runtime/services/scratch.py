"""Folders of a shown tree that are plain directories of the host: what writes much does not go through FUSE.

Blocks, and asks the mount: to be called in a thread, never by who feeds or serves it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InvalidArgument, Unavailable
from ..holdings import MountPlace
from ..mounts.mountpoints import bind, mounts_at, resolved
from ..names import quoted
from ..removing import remove_tree

__all__ = ["Scratch", "make_folders"]

_MOUNT_ENDED = (errno.ECONNABORTED, errno.ENOTCONN)
_MOST_FILES = 1_000
_MOST_BYTES = 100 * 1024 * 1024


class Scratch:
    """`folder` is its path in the tree; its bytes lie in `place`, and outlive the mount process."""

    def __init__(self, place: MountPlace, shown: str, folder: str) -> None:
        self.folder = folder
        self.path = Path(shown, folder)
        self._shown = Path(shown)
        self._source = place.scratch_folder(folder)
        self._unfinished = place.directory / "scratch.new"

    def begin(self) -> None:
        """Binds it, where it is not. The first time it begins with a copy of what the tree has there.

        Raises:
            InvalidArgument: invalid_path, it is no directory there, a symlink leads elsewhere, or it
                holds too much to be copied.
            Unavailable: mount_unusable, the host may not bind; directory_unusable.
        """
        with _errors_of(self.folder):
            self._refuse_symlinks()
            is_new = not self._source.is_dir()
            if is_new:
                self._fill()
            if not self._is_bound():
                self.path.mkdir(parents=True, exist_ok=True)
                self._bind(is_new)

    def _bind(self, is_new: bool) -> None:
        try:
            bind(self._source, self.path)
        except Unavailable:
            if is_new:  # so that nobody takes it for what was written
                remove_tree(self._source)
            raise

    def _is_bound(self) -> bool:
        """Its mount may have gone with the name below it, or with the process that shows the tree."""
        return bool(mounts_at(resolved(self.path)))

    def _refuse_symlinks(self) -> None:
        """What they lead to may be anywhere, and what is bound there hides it from all others too."""
        there = resolved(self.path)
        if there != resolved(self._shown) / self.folder:
            raise InvalidArgument(
                "invalid_path",
                f"scratch folder '{quoted(self.folder)}' is {quoted(str(there))}, by a symlink",
                "Name a folder without symlinks: what is written to that one goes where it leads.",
            )

    def _fill(self) -> None:
        fresh = self._unfinished
        remove_tree(fresh)
        fresh.mkdir(mode=0o755, parents=True)
        self._source.parent.mkdir(mode=0o700, exist_ok=True)
        if self.path.is_dir():
            self._check_size()
            shutil.copytree(self.path, fresh, symlinks=True, dirs_exist_ok=True)
        elif os.path.lexists(self.path):
            raise FileExistsError
        os.rename(fresh, self._source)

    def _check_size(self) -> None:
        count = size = 0
        for directory, _, names in os.walk(self.path):
            for name in names:
                count += 1
                size += os.lstat(os.path.join(directory, name)).st_size
            if count > _MOST_FILES or size > _MOST_BYTES:
                raise InvalidArgument(
                    "invalid_path",
                    f"scratch folder '{quoted(self.folder)}' holds more than {_MOST_FILES:,} files or"
                    f" {_MOST_BYTES >> 20} MB in the workspace: too much for each host to begin with a copy",
                    "Name a folder for what the run writes alone, or leave it out: only slower.",
                )


def make_folders(directory: str, folders: Iterable[str]) -> None:
    """Where the tree is plain disk anyway. Blocks.

    Raises:
        InvalidArgument: invalid_path. Unavailable: directory_unusable.
    """
    for folder in folders:
        with _errors_of(folder):
            Path(directory, folder).mkdir(parents=True, exist_ok=True)


@contextmanager
def _errors_of(folder: str) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise InvalidArgument(
            "invalid_path",
            f"scratch folder '{quoted(folder)}': there is a file of that name in the workspace",
            "Name a folder.",
        ) from None
    except OSError as error:
        raise Unavailable(
            "directory_unusable",
            f"scratch folder '{quoted(folder)}': {error.strerror or error}",
            "The mount ended: try again."
            if error.errno in _MOUNT_ENDED
            else "See whether the host's disk is full.",
        ) from None
