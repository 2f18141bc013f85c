"""What a process holds, as the kernel says; bytes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["own_of", "peak_of"]


def peak_of(pid: int) -> int:
    """The most that it ever had resident."""
    return _status(pid, "VmHWM")


def own_of(pid: int) -> int:
    """What it has now but for pages of files, which other processes share."""
    return _status(pid, "RssAnon")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
