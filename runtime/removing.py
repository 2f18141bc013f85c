"""Trees that programs made, walked and removed however deep they are, and whatever they forbid. Blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress

__all__ = ["files_below", "remove_tree"]

_MOVED = ".milkweed-removed-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | bytes | os.PathLike[str]) -> None:
    """All of it that can be removed; nothing where it is no directory. Symlinks are not followed.

    Folders of folders are moved to the top first: no path is too long, and nothing recurses.
    """
    with suppress(OSError):
        if _is_forbidden(os.lstat(path).st_mode):
            os.chmod(path, stat.S_IRWXU)
        top = os.open(path, _DIRECTORY)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def files_below(
    top: str, on_error: Callable[[OSError], object] = lambda _: None
) -> Iterator[tuple[str, list[str]]]:
    """Each directory with the names in it that are none; `on_error` hears of what cannot be read."""
    waiting = [top]
    while waiting:
        directory, names = waiting.pop(), []
        try:
            with os.scandir(directory) as content:
                for found in content:
                    if found.is_dir(follow_symlinks=False):
                        waiting.append(os.path.join(directory, found.name))
                    else:
                        names.append(found.name)
        except OSError as error:
            on_error(error)
        yield directory, names


def _is_forbidden(mode: int) -> bool:
    return stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU


def _empty(top: int) -> None:
    waiting = _unlinked(top)
    moved = 0
    while waiting:
        name = waiting.pop()
        with suppress(OSError):
            fd = _entered(name, top)
            try:
                for below in _unlinked(fd):
                    fresh = f"{_MOVED}{moved}"
                    moved += 1
                    with suppress(OSError):
                        _allow(below, fd)  # its `..` changes
                        os.rename(below, fresh, src_dir_fd=fd, dst_dir_fd=top)
                        waiting.append(fresh)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)


def _unlinked(directory: int) -> list[str]:
    """The folders that are left of what is in it."""
    folders = []
    with os.scandir(directory) as content:
        for found in content:
            if found.is_dir(follow_symlinks=False):
                folders.append(found.name)
            else:
                with suppress(OSError):
                    os.unlink(found.name, dir_fd=directory)
    return folders


def _entered(name: str, directory: int) -> int:
    _allow(name, directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def _allow(name: str, directory: int) -> None:
    if _is_forbidden(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        os.chmod(name, stat.S_IRWXU, dir_fd=directory)
