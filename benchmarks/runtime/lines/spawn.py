"""From the request for procs to the first reply of all of them, and what a proc weighs."""

from __future__ import annotations

import os
import statistics
import sys
import time

from ..api import SIDE, Actor, endpoint, spawn, start_procs, stop
from ..plan import ALL, BOTH, Plan, Program, Row
from ..procfs import memory_mib

__all__ = ["Measured", "plans", "warmed"]

_STARTER_READY_S = 30.0

TWO_CORES = (
    "32 processes fork, start three threads and make an actor, 15-20 ms of CPU each: two cores are the bound"
)


class Ready(Actor):
    def __init__(self, torch: bool) -> None:
        if torch:
            import torch as _  # noqa: F401

    @endpoint
    async def where(self) -> tuple[int, bool]:
        return os.getpid(), "torch" in sys.modules


async def warmed() -> None:
    """Procs before the measured ones; ours until they are warm."""
    await stop(await start_procs(1))
    deadline = time.monotonic() + _STARTER_READY_S
    while SIDE == "ours" and time.monotonic() < deadline:
        procs = await start_procs(1)
        starts = set(procs.starts.values())
        await stop(procs)
        if starts == {"warm"}:
            return


class Measured(Program):
    """`torch`: the actors need it."""

    def __init__(self, procs: int, torch: bool) -> None:
        self._procs, self._torch = procs, torch

    async def open(self) -> None:
        await warmed()

    async def sample(self) -> dict[str, float | str]:
        return await self._once(self._procs)

    async def _once(self, count: int) -> dict[str, float | str]:
        started = time.perf_counter()
        procs = await start_procs(count)
        actors = await spawn(procs, "ready", Ready, self._torch)
        replies = list((await actors.where.call()).values())
        elapsed_s = time.perf_counter() - started
        if len(replies) != count or (self._torch and not all(torch for _, torch in replies)):
            raise RuntimeError(f"{len(replies)} replies: {replies}")
        starts = (
            {"start": "started " + ", ".join(sorted(set(procs.starts.values())))} if SIDE == "ours" else {}
        )
        sizes = [memory_mib(pid) for pid, _ in replies]
        stopping = time.perf_counter()
        await stop(procs)
        return {
            **starts,
            "s": elapsed_s,
            "stop_s": time.perf_counter() - stopping,
            **{name: statistics.fmean(size[name] for size in sizes) for name in sizes[0]},
        }


def plans(*, quick: bool) -> list[Plan]:
    torch_ready = {"ours": {"MILKWEED_WARM_MODULES": "torch"}}
    found = []
    for procs, limit, times in ((1, None, None), (8, None, None), (32, 0.5, 9.2)):
        rows = (
            Row(
                "s", f"spawn {procs}, first reply; ours with torch imported", "s", limit, times, why=TWO_CORES
            ),
        )
        rounds = 2 if quick else 5 if procs == 32 else 10
        note = "ours has torch in every proc, Monarch has not"
        found.append(Plan(rows, rounds, {"procs": procs, "torch": False}, BOTH, torch_ready, note=note))
        rows = (
            Row("s", f"spawn {procs}, first reply", "s"),
            Row("stop_s", f"stop {procs}", "s"),
            Row("rss", f"RSS of one of {procs} procs", "MiB"),
            Row("pss", f"PSS of one of {procs} procs", "MiB"),
            Row("private", f"private memory of one of {procs} procs", "MiB"),
        )
        found.append(Plan(rows, rounds, {"procs": procs, "torch": False}, ALL))
    rows = (Row("s", "spawn 8 that need torch, first reply", "s"),)
    found.append(Plan(rows, 1 if quick else 3, {"procs": 8, "torch": True}, BOTH, torch_ready))
    return found
