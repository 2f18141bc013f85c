"""Opening what a caller names, and only if it is a regular file; refusals say what is there instead."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from ..errors import InvalidArgument, MilkweedError, NotFound
from ..file_records import FileKind
from ..names import parse_name, quoted

__all__ = ["explain", "kind_of", "named_path", "open_regular"]

_MAX_NAMES = 20_000
_KINDS: tuple[tuple[int, FileKind], ...] = (
    (stat.S_IFREG, "file"),
    (stat.S_IFDIR, "directory"),
    (stat.S_IFLNK, "link"),
    (stat.S_IFCHR, "character device"),
    (stat.S_IFBLK, "block device"),
    (stat.S_IFIFO, "fifo"),
    (stat.S_IFSOCK, "socket"),
)


def kind_of(mode: int) -> FileKind:
    """The kind of file that a `st_mode` tells."""
    return next((kind for bits, kind in _KINDS if stat.S_IFMT(mode) == bits), "unknown")


def named_path(path: str) -> str:
    r"""The path that is meant: as it is written, or with its escapes (`bad\xffname`) where only that exists.

    Blocks as the file system does.
    """
    try:
        if os.path.lexists(path) or not os.path.lexists(meant := parse_name(path)):
            return path
    except ValueError:
        return path
    return meant


@contextmanager
def open_regular(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor for reading a regular file, and its status.

    It never waits for a writer of a FIFO and never acquires a terminal. Blocks as the file system does.

    Raises:
        NotFound, InvalidArgument: no such file, not a regular one, or not readable.
    """
    with _explained(path):
        _refuse_special(path, os.stat(path))
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        with _explained(path):
            status = os.fstat(fd)
            _refuse_special(path, status)
            yield fd, status
    finally:
        os.close(fd)


def _refuse_special(path: str, status: os.stat_result) -> None:
    kind = kind_of(status.st_mode)
    if kind == "directory":
        raise InvalidArgument(
            "invalid_path", f"{quoted(path)} is a directory", "List it, or name a file in it."
        )
    if kind != "file":
        raise InvalidArgument(
            "invalid_path",
            f"{quoted(path)} is a {kind}",
            "Only regular files are read; use a run for anything else.",
        )


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise explain(error, path) from error


def explain(error: OSError | ValueError, path: str) -> MilkweedError:
    """An error of the operating system about a path, with what is there instead."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _not_found(path)
    if isinstance(error, PermissionError):
        return InvalidArgument(
            "invalid_path", f"permission denied: {_denied(path)}", "Read it as that user, or change its mode."
        )
    if isinstance(error, OSError):
        return InvalidArgument(
            "invalid_path", f"cannot read {quoted(path)}: {error.strerror or error}", "List what is above it."
        )
    return InvalidArgument(
        "invalid_path", f"no path: '{quoted(path)}' ({quoted(str(error))})", "Name a file or a directory."
    )


def _denied(path: str) -> str:
    """The part of the path that stops us, with its owner and mode."""
    me = os.geteuid()
    for part in (*_parents(path), path):
        try:
            status = os.stat(part)
        except OSError:
            break
        needed = os.X_OK if part != path else os.R_OK
        if not os.access(part, needed, effective_ids=os.access in os.supports_effective_ids):
            mode = stat.filemode(status.st_mode)
            return (
                f"{quoted(part)} is {mode}, owned by uid {status.st_uid} gid {status.st_gid}; we are uid {me}"
            )
    return f"{quoted(path)} (we are uid {me})"


def _parents(path: str) -> list[str]:
    """All directories above a path, outermost first."""
    parents: list[str] = []
    while (above := os.path.dirname(path)) != path:
        parents.append(above)
        path = above
    return parents[::-1]


def _not_found(path: str) -> NotFound:
    """Names the nearest entries of the last directory on the path that exists."""
    directory, missing = os.path.split(path)
    while not os.path.isdir(directory) and directory != os.path.dirname(directory):
        if os.path.lexists(directory):
            return NotFound(
                "file_not_found",
                f"no {quoted(path)}; {quoted(directory)} is not a directory",
                "List what is above it.",
            )
        directory, missing = os.path.split(directory)
    if os.path.islink(os.path.join(directory, missing)):
        target = os.readlink(os.path.join(directory, missing))
        return NotFound(
            "file_not_found",
            f"{quoted(os.path.join(directory, missing))} is a link to {quoted(target)}, which is missing",
            f"List {quoted(directory)}.",
        )
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MAX_NAMES)]
    except OSError:
        names = []
    near = difflib.get_close_matches(missing, names, n=5, cutoff=0.5) or sorted(names)[:5]
    where = quoted(directory)
    there = f"in {where} nearest: {', '.join(map(quoted, near))}" if near else f"{where} has nothing in it"
    return NotFound("file_not_found", f"no {quoted(path)}; {there}", f"List {where}.")
