"""Memory of a process, from /proc."""

from __future__ import annotations

from pathlib import Path

__all__ = ["memory_mib"]


def memory_mib(pid: int) -> dict[str, float]:
    """`rss`, `pss` (shared pages divided among their users) and `private`, in MiB."""
    fields: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        fields[name.rstrip(":")] = int(value)
    private = fields["Private_Clean"] + fields["Private_Dirty"]
    return {"rss": fields["Rss"] / 1024, "pss": fields["Pss"] / 1024, "private": private / 1024}
