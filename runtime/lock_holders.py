"""Who holds a lock of a file on this machine, as the kernel tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LockHolder", "lock_holders", "pids_with_lock"]

_COMMAND_SHOWN = 80


@dataclass(frozen=True, slots=True)
class LockHolder:
    pid: int
    command: str
    stopped: bool

    def __str__(self) -> str:
        state = ", which is stopped" if self.stopped else ""
        return f"process {self.pid} ({self.command}){state}"


def pids_with_lock(lines: Iterable[str], device: int, inode: int) -> list[int]:
    """Of `/proc/locks`: who has a write lock of that file; those who wait for one are not meant."""
    found = []
    for line in lines:
        words = line.split()
        if len(words) < 8 or words[1] == "->" or words[3] != "WRITE":
            continue
        major, minor, number = words[5].split(":")
        is_it = (int(major, 16), int(minor, 16), int(number)) == (os.major(device), os.minor(device), inode)
        if is_it and int(words[4]) > 0 and int(words[4]) not in found:
            found.append(int(words[4]))
    return found


def lock_holders(path: Path) -> list[LockHolder]:
    """Empty where nobody has one, or where it is not to be seen: on another machine, in another namespace."""
    try:
        status = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
        pids = pids_with_lock(lines, status.st_dev, status.st_ino)
    except (OSError, ValueError):
        return []
    return [_holder(pid) for pid in pids]


def _holder(pid: int) -> LockHolder:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return LockHolder(pid, "gone", False)
    return LockHolder(pid, " ".join(command.split())[:_COMMAND_SHOWN], state in ("T", "t"))
