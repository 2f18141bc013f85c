"""What is seen of ranks from outside: /proc, where reads may hang, and the run's directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..agent import ptree
from ..metrics.find import written_files
from .machine import Sample

__all__ = ["RankProcess", "sample_rank", "sizes_in"]

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A living rank: the label of its files, its own process, and the bytes that it has printed."""

    rank: int
    label: str
    pid: int
    output: int


def sizes_in(run_directory: Path) -> dict[str, str]:
    """By label, what changes whenever `milkweed.report` told something."""
    found: dict[str, list[str]] = {}
    with suppress(OSError), os.scandir(run_directory) as entries:
        for entry in entries:
            label, mark, _ = entry.name.partition(".metrics.")
            if mark:
                with suppress(OSError):
                    status = entry.stat()
                    found.setdefault(label, []).append(f"{entry.name}:{status.st_size}:{status.st_mtime_ns}")
    return {label: " ".join(sorted(parts)) for label, parts in found.items()}


def sample_rank(rank: RankProcess, reported: Mapping[str, str], proc: str = "/proc", *, full: bool) -> Sample:
    """`full`: with its processes, and the files of metrics that they write; some milliseconds of work."""
    progress = reported.get(rank.label, "")
    if not full:
        return Sample(rank.rank, rank.output, progress)
    table = ptree.family(rank.pid, proc)
    root = table.get(rank.pid)
    return Sample(
        rank.rank,
        rank.output,
        progress,
        cpu_s=sum(_cpu_s(pid, proc) for pid in table),
        io=sum(_io(pid, proc) for pid in table),
        wakes=_wakes(rank.pid, proc),
        os_state=root.state if root is not None else "X",
        files=_sizes(written_files(table, Path(proc))),
    )


def _sizes(paths: Iterable[str]) -> str:
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(f"{path}:{os.stat(path).st_size}")
    return " ".join(sorted(found))


def _cpu_s(pid: int, proc: str) -> float:
    """Of the process and of those of its children that it has reaped."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return 0.0
    fields = text[text.rindex(b")") + 2 :].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _wakes(pid: int, proc: str) -> int | None:
    """How often the main thread has waited for something."""
    with suppress(OSError), open(f"{proc}/{pid}/task/{pid}/status", "rb", buffering=0) as file:
        _, found, rest = file.read(8192).partition(b"\nvoluntary_ctxt_switches:")
        return int(rest.split(None, 1)[0]) if found else None
    return None


def _io(pid: int, proc: str) -> int:
    """Bytes that it has read and written by these calls, from whatever device."""
    try:
        with open(f"{proc}/{pid}/io", "rb", buffering=0) as file:
            lines = file.read(1024).split()
    except OSError:
        return 0
    return int(lines[1]) + int(lines[3])
