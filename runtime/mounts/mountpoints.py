"""What is mounted where on this host, and getting rid of it, dead or alive. Blocks, but `is_answering`."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio

from .. import _native
from ..errors import Unavailable

__all__ = [
    "TYPE",
    "Bound",
    "Holder",
    "Mounted",
    "all_mounts",
    "bind",
    "clear",
    "find_mounts",
    "holders",
    "is_answering",
    "missing",
    "mounts_at",
    "release",
    "remove_made",
    "resolved",
    "set_read_ahead",
]

_MOST_STACKED = 16
_ANSWER_S = 2.0
_MOST_HOLDERS = 16
_MOST_LINKS = 40
TYPE = "fuse.milkweed"


class Mounted(NamedTuple):
    """`device` is the minor number that the kernel knows the file system by."""

    path: bytes
    type: str
    device: int


class Holder(NamedTuple):
    """A process that sits in a mount: `what` is `cwd`, `root`, `exe`, or an open file's path there."""

    pid: int
    command: str
    what: str


def find_mounts(mountinfo: Iterable[bytes]) -> list[Mounted]:
    """From lines of `/proc/PID/mountinfo` (proc(5)), in the order in which they were mounted."""
    found = []
    for line in mountinfo:
        before, _, after = line.partition(b" - ")
        fields, kind = before.split(), after.split()
        if len(fields) >= 5 and kind:
            minor = int(fields[2].partition(b":")[2])
            found.append(Mounted(_unescaped(fields[4]), kind[0].decode(), minor))
    return found


def mounts_at(path: Path) -> list[Mounted]:
    """What is mounted on a directory of this process's namespace, the topmost last. Asks no file system."""
    wanted = os.path.abspath(os.fsencode(path))
    return [one for one in all_mounts() if one.path == wanted]


def all_mounts() -> list[Mounted]:
    """Of this process's namespace."""
    with open("/proc/self/mountinfo", "rb") as file:
        return find_mounts(file)


async def is_answering(path: Path) -> bool:
    """Whether what is mounted there answers: a dead file system refuses, one that hangs says nothing."""
    try:
        # In a process: a thread that asks a file system that hangs would be lost.
        process = await anyio.open_process(["stat", "-f", "--", path], stdout=None, stderr=None)
    except OSError:
        return False
    async with process:
        with anyio.move_on_after(_ANSWER_S):
            return await process.wait() == 0
        process.kill()
    return False


def clear(path: Path, *, ours_only: bool = True) -> list[Mounted]:
    """Unmounts all that is stacked on a directory, whatever uses it: by force, then lazily. What there was.

    Raises:
        Unavailable: mount_unusable, something else is mounted there, or it cannot be unmounted.
    """
    gone: list[Mounted] = []
    for _ in range(_MOST_STACKED):
        found = mounts_at(path)
        if not found:
            break
        if ours_only and found[-1].type != TYPE:
            raise Unavailable(
                "mount_unusable",
                f"{path} is a mount of type {found[-1].type} that is not ours",
                "Name another directory, or unmount it.",
            )
        _unmount(path)
        gone.append(found[-1])
    if mounts_at(path):
        raise Unavailable(
            "mount_unusable",
            f"{path} cannot be unmounted",
            f"Run as root: umount -f {path}; umount -l {path}",
        )
    return gone


def _unmount(path: Path) -> None:
    """With force first: this ends the connection, and with it whatever hangs in it, a daemon too."""
    for flags in (_native.MNT_FORCE, _native.MNT_DETACH):
        try:
            _native.umount(str(path), flags)
        except OSError as error:
            if error.errno == errno.EPERM:
                _unmount_as_user(path)
                return
            continue
        return


def _unmount_as_user(path: Path) -> None:
    if (helper := shutil.which("fusermount3")) is not None:
        command = [helper, "-u", "-z", "--", os.fspath(path)]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, check=False, capture_output=True, timeout=10)


def release(path: Path) -> list[Holder]:
    """Unmounts a live mount in peace; while somebody uses it, lazily, and says who: they keep what they have
    open for as long as the mount process lives.
    """
    try:
        _native.umount(str(path))
    except OSError as error:
        found = holders(path)
        if error.errno == errno.EBUSY:
            with suppress(OSError):
                _native.umount(str(path), _native.MNT_DETACH)
        else:
            clear(path)
        return found
    return []


class Bound(NamedTuple):
    """A directory that is seen at `path` too; `made` had to be made for that, the innermost first."""

    path: Path
    made: list[Path]

    def undo(self) -> None:
        """Whoever uses it."""
        with suppress(OSError):
            _native.umount(str(self.path), _native.MNT_DETACH)
        remove_made(self.made)


def bind(directory: Path, path: Path) -> Bound:
    """
    Raises:
        Unavailable: mount_unusable.
        OSError: `path` cannot be made.
    """
    path = resolved(path)
    bound = Bound(path, missing(path))
    path.mkdir(parents=True, exist_ok=True)
    try:
        _native.mount(str(directory), str(path), flags=_native.MS_BIND)
    except OSError as error:
        raise Unavailable(
            "mount_unusable",
            f"{directory} cannot be bound to {path}: {error.strerror}",
            "Look whether the host may mount.",
        ) from None
    return bound


def resolved(path: Path) -> Path:
    """The path that the kernel lists a mount there by, whatever symlinks lead to it. What is mounted there
    is not asked: it may hang.
    """
    for _ in range(_MOST_LINKS):
        parent = os.path.realpath(path.absolute().parent)
        try:
            target = os.readlink(os.path.join(parent, path.name))
        except OSError:
            return Path(parent, path.name)
        path = Path(parent, target)
    return path


def missing(path: Path) -> list[Path]:
    """The directories that have to be made for it, the innermost first."""
    return [one for one in (path, *path.parents) if not os.path.lexists(one)]


def remove_made(directories: Iterable[Path]) -> None:
    """Those of them that are empty."""
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()


def holders(path: Path) -> list[Holder]:
    """Processes that we may look at with a directory or a file open below a path; 16 at most.

    Of our mount namespace alone: what another one has at that path is another file system.
    """
    found: list[Holder] = []
    ours = os.readlink("/proc/self/ns/mnt")
    inside = os.fspath(resolved(path)).rstrip("/")
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or len(found) == _MOST_HOLDERS:
            continue
        with suppress(OSError):
            if os.readlink(f"{entry.path}/ns/mnt") != ours:
                continue
            if (what := _held_by(entry.path, inside)) is not None:
                name = Path(entry.path, "comm").read_text(errors="replace").strip()
                found.append(Holder(int(entry.name), name, what))
    return found


def _held_by(process: str, inside: str) -> str | None:
    for link in ("cwd", "root", "exe"):
        with suppress(OSError):
            if _is_inside(os.readlink(f"{process}/{link}"), inside):
                return link
    for descriptor in os.scandir(f"{process}/fd"):
        with suppress(OSError):
            target = os.readlink(descriptor.path)
            if _is_inside(target, inside):
                return target
    return None


def _is_inside(path: str, inside: str) -> bool:
    return path == inside or path.startswith(inside + "/")


def set_read_ahead(path: Path, kib: int) -> None:
    """Has the kernel ask for so much at once of a file that is read in order, where we may say so."""
    for mounted in mounts_at(path)[-1:]:
        with suppress(OSError):
            Path(f"/sys/class/bdi/0:{mounted.device}/read_ahead_kb").write_text(f"{kib}\n")


def _unescaped(field: bytes) -> bytes:
    """Blanks and backslashes of a path are written in octal."""
    parts = field.split(b"\\")
    return parts[0] + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in parts[1:])
