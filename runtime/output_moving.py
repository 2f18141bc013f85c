"""Output of runs, moved to where it outlives its mesh. Blocking.

A run of one host is moved in one step: who is killed in between leaves each of them whole, in one place at
least.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .holdings import HeldFile, keep, make_private
from .removing import files_below, remove_tree

__all__ = ["led_to", "move_output"]


def led_to(link: Path, wanted: Path) -> Path:
    """Where a link leads, which is made to lead where that is `wanted` if there is none.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        os.symlink(wanted.absolute(), link)
    return link.readlink()


def move_output(source: Path, target: Path) -> None:
    """Moves a directory of files to a place that is not there, or is what an earlier try made of it.

    Raises:
        OSError: all of it is where it was. No link or device leaves a file system, and a copy
            leaves 1 GiB of the disk to others.
    """
    part = target.with_name(f".{target.name}.part")
    make_private(target.parent)
    try:
        if not target.is_dir():
            _rename_or_copy(source, part, target)
    finally:
        remove_tree(part)
    remove_tree(source)


def _rename_or_copy(source: Path, part: Path, target: Path) -> None:
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        remove_tree(part)
        make_private(part)
        if failed := keep(_files(source), part).failed:
            raise OSError(errno.EIO, failed[0]) from None
        os.rename(part, target)


def _files(directory: Path) -> Iterator[HeldFile]:
    """
    Raises:
        OSError: some of it can be no copy.
    """

    def fail(error: OSError) -> None:
        raise error

    for folder, names in files_below(str(directory), fail):
        for name in names:
            real = os.path.join(folder, name)
            found = os.lstat(real)
            if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
                continue  # a door of a process that has ended
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, f"{real} is no file")
            path = os.path.relpath(real, directory)
            size, stored = found.st_size, found.st_blocks * 512
            yield HeldFile(path, real, size, stored, found.st_mtime_ns, "temporary")
