"""What file system a path is on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["NETWORK_TYPES", "file_system_type", "find_type", "is_full"]

_NEXT_TO_NOTHING = 64 * 1024

NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "afs", "panfs"}
)


def file_system_type(path: Path) -> str:
    """The type of the file system that holds `path`, in the kernel's words; empty where it is unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    return find_type(mounts, os.path.realpath(path))


def find_type(mountinfo: Iterable[str], path: str) -> str:
    """The type of the deepest, latest mount above `path`, from lines of `/proc/PID/mountinfo` (proc(5))."""
    best, found = -1, ""
    for line in mountinfo:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind:
            continue
        # Blanks in a path are written in octal.
        point = fields[4].encode().decode("unicode_escape")
        inside = point in ("/", path) or path.startswith(point + "/")
        if inside and len(point) >= best:
            best, found = len(point), kind[0]
    return found


def is_full(path: Path) -> bool:
    """Whether we could write next to nothing more on the file system of a path."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    free = found.f_bavail if os.geteuid() else found.f_bfree
    return found.f_blocks > 0 and free * found.f_frsize < _NEXT_TO_NOTHING
