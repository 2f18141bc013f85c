"""`call_one`: async and sync endpoints, awaited and with `.get()`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ..api import SIDE, Actor, endpoint, in_thread, spawn, start_procs, stop
from ..figures import percentile
from ..plan import ALL, Plan, Program, Row

__all__ = ["Echo", "Measured", "plans"]

_WARM_UP = 30


class Echo(Actor):
    @endpoint
    async def awaited(self, value: int) -> int:
        return value


class Plain(Actor):
    """Monarch refuses both kinds in one actor."""

    @endpoint
    def plain(self, value: int) -> int:
        return value


class Measured(Program):
    """`calls` of each kind a sample, one at a time, to one of 8 procs."""

    def __init__(self, calls: int) -> None:
        self._calls = calls

    async def open(self) -> None:
        self._procs = await start_procs(8)
        self._actors = await spawn(self._procs, "echo", Echo)
        self._awaited = self._actors.slice(gpus=0).awaited
        self._plain = (await spawn(self._procs, "plain", Plain)).slice(gpus=0).plain
        for called in (self._awaited, self._plain):
            await self._awaits(called, _WARM_UP)

    async def sample(self) -> dict[str, float]:
        figures = {}
        for name, called in (("async", self._awaited), ("sync", self._plain)):
            times = await self._awaits(called, self._calls)
            figures |= {f"{name}_p50": percentile(times, 50), f"{name}_p99": percentile(times, 99)}
        if SIDE != "bare":
            figures["get_p50"] = percentile(await in_thread(self._gets, self._awaited, self._calls), 50)
        return figures

    async def _awaits(self, called: Any, calls: int) -> list[float]:
        times = []
        for number in range(calls):
            started = time.perf_counter()
            answer = await called.call_one(number)
            times.append((time.perf_counter() - started) * 1e6)
            if answer != number:
                raise RuntimeError(f"{number} came back as {answer!r}")
        return times

    def _gets(self, called: Any, calls: int) -> list[float]:
        times = []
        for number in range(calls):
            started = time.perf_counter()
            called.call_one(number).get()
            times.append((time.perf_counter() - started) * 1e6)
        return times

    async def close(self) -> None:
        await stop(self._procs)
        await asyncio.sleep(0)


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("async_p50", "call_one p50, async endpoint", "us", times=3),
        Row("async_p99", "call_one p99, async endpoint", "us"),
        Row("sync_p50", "call_one p50, sync endpoint", "us", times=3),
        Row("sync_p99", "call_one p99, sync endpoint", "us"),
        Row("get_p50", "call_one(...).get() p50, async endpoint", "us", times=3),
    )
    return [Plan(rows, 3 if quick else 10, {"calls": 100 if quick else 500}, ALL)]
