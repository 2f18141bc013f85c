"""The kernel's counts of out-of-memory kills, and by how much they rose around a death."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Counts", "OomHistory", "cgroup_counter", "parse_cgroups", "parse_oom_kill", "read_counts", "rise"]

_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Counts:
    """Kills of the whole machine, and those of one process's memory cgroup (None: unreadable)."""

    machine: int = 0
    group: int | None = None


def parse_oom_kill(text: str) -> int | None:
    """The `oom_kill` line of /proc/vmstat, memory.events or memory.oom_control."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdecimal():
            return int(value)
    return None


def parse_cgroups(text: str) -> tuple[str, ...]:
    """Paths below the cgroup mount where the counter may be, from /proc/PID/cgroup: version 1 first."""
    paths: list[str] = []
    for line in text.splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            paths.insert(0, f"memory{path.rstrip('/')}/memory.oom_control")
        elif number == "0":
            paths.append(f"{path.strip('/')}/memory.events".lstrip("/"))
    return tuple(paths)


def cgroup_counter(pid: int) -> Path | None:
    """The file with the counter of the cgroup of `pid`."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    return next((path for name in parse_cgroups(text) if (path := _CGROUPS / name).is_file()), None)


def read_counts(group: Path | None) -> Counts:
    return Counts(_read(Path("/proc/vmstat")) or 0, _read(group) if group else None)


def _read(path: Path) -> int | None:
    try:
        return parse_oom_kill(path.read_text())
    except OSError:
        return None


def rise(before: Counts, after: Counts) -> int:
    """By how much the counts rose: the cgroup's where it knows, the machine's where that says more."""
    group = after.group - before.group if after.group is not None and before.group is not None else 0
    return max(group, after.machine - before.machine, 0)


class OomHistory:
    """Counts of the machine over the last seconds, so that a kill of an hour ago explains no death of now."""

    def __init__(
        self,
        window_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[Path | None], Counts] = read_counts,
    ) -> None:
        self._window_s = window_s
        self._clock = clock
        self._read = read
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self) -> None:
        """Keeps the counts of now; to be called every second or so while anything runs."""
        now = self._clock()
        self._samples.append((now, self._read(None).machine))
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._window_s:
            self._samples.popleft()

    def counts(self, group: Path | None) -> Counts:
        return self._read(group)

    def rise_since(self, start: Counts, group: Path | None) -> int:
        """The rise up to now, from `start` for the cgroup and from the window's begin for the machine."""
        now = self._read(group)
        oldest = max(start.machine, self._samples[0][1] if self._samples else 0)
        return rise(Counts(oldest, start.group), now)
