"""What idle procs weigh when there are many."""

from __future__ import annotations

import statistics
import time

from ..api import spawn, start_procs, stop
from ..idle import Idle
from ..plan import Plan, Program, Row
from ..procfs import memory_mib
from . import spawn as spawning

__all__ = ["Measured", "plans"]

PRIVATE = (
    "reference counts are written wherever Python looks: fork and becoming a proc cost 1.6 MiB, its main"
    " module 0.4, the node with its loop and thread 0.5, serving 0.4, import and call of an actor 0.9; code"
    " is gathered on few pages, but types, strings and the interpreter's own objects cannot be moved"
)


class Measured(Program):
    """Ours alone: as many of Monarch's would take 16 GB."""

    def __init__(self, procs: int) -> None:
        self._count = procs

    async def open(self) -> None:
        await spawning.warmed()

    async def sample(self) -> dict[str, float | str]:
        started = time.perf_counter()
        procs = await start_procs(self._count)
        actors = await spawn(procs, "idle", Idle)
        pids = list((await actors.pid.call()).values())
        elapsed_s = time.perf_counter() - started
        starts = {"start": "started " + ", ".join(sorted(set(procs.starts.values())))}
        sizes = [memory_mib(pid) for pid in pids]
        await stop(procs)
        mean = {name: statistics.fmean(size[name] for size in sizes) for name in sizes[0]}
        return {"s": elapsed_s, **mean, **starts}


def plans(*, quick: bool) -> list[Plan]:
    count = 16 if quick else 256
    rows = (
        Row("pss", f"PSS of one of {count} idle procs, torch imported", "MiB", 12),
        Row("private", f"private memory of one of {count} idle procs, torch imported", "MiB", 3, why=PRIVATE),
        Row("s", f"spawn {count}, first reply, torch imported", "s"),
    )
    warm = {"ours": {"MILKWEED_WARM_MODULES": "torch"}}
    return [
        Plan(
            rows,
            1 if quick else 3,
            {"procs": count},
            ("ours",),
            warm,
            note="Monarch: see spawn",
            timeout_s=120,
        )
    ]
