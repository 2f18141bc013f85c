"""All procs at once: `call`, which gathers their replies, and `broadcast`, which awaits none."""

from __future__ import annotations

import time

from ..api import SIDE, Actor, endpoint, spawn, start_procs, stop
from ..figures import percentile
from ..plan import ALL, Plan, Program, Row
from .call import Echo

__all__ = ["Measured", "plans"]

_WARM_UP = 10
_TOLD = 10

EACH = (
    "every proc wakes, unpickles, runs and answers: 50-100 us of CPU each, and 30-50 the caller, on two cores"
)


TOLD = (
    f"{_TOLD} broadcasts, none awaited, then a call that returns how many have arrived: all is timed, "
    "as a broadcast alone is done when its messages are on their way"
)


class Counter(Actor):
    def __init__(self) -> None:
        self._told = 0

    @endpoint
    async def tell(self, value: int) -> None:
        self._told += value

    @endpoint
    async def told(self) -> int:
        return self._told


class Measured(Program):
    """`calls` a sample, one at a time, each to all procs; and a tenth as many bursts of broadcasts."""

    def __init__(self, procs: int, calls: int) -> None:
        self._count, self._calls = procs, calls

    async def open(self) -> None:
        self._procs = await start_procs(self._count)
        self._actors = await spawn(self._procs, "echo", Echo)
        for _ in range(_WARM_UP):
            await self._actors.awaited.call(0)
        if SIDE != "bare":
            self._counters, self._told = await spawn(self._procs, "counter", Counter), 0
            await self._burst()

    async def sample(self) -> dict[str, float]:
        times = []
        for number in range(self._calls):
            started = time.perf_counter()
            answers = await self._actors.awaited.call(number)
            times.append((time.perf_counter() - started) * 1e3)
            if list(answers.values()) != [number] * self._count:
                raise RuntimeError(f"{number} came back as {list(answers.values())}")
        figures = {"p50": percentile(times, 50), "p99": percentile(times, 99)}
        if SIDE != "bare":
            bursts = [await self._burst() for _ in range(self._calls // _TOLD)]
            figures["told"] = percentile(bursts, 50)
        return figures

    async def _burst(self) -> float:
        """In milliseconds."""
        started = time.perf_counter()
        for _ in range(_TOLD):
            self._counters.tell.broadcast(1)
        answers = await self._counters.told.call()
        ended = time.perf_counter()
        self._told += _TOLD
        if list(answers.values()) != [self._told] * self._count:
            raise RuntimeError(f"of {self._told} messages there came {list(answers.values())}")
        return (ended - started) * 1e3

    async def close(self) -> None:
        await stop(self._procs)


def plans(*, quick: bool) -> list[Plan]:
    found = []
    for procs in (8, 32):
        rows = (
            Row("p50", f"call on {procs} procs p50", "ms", 5 if procs == 32 else None, 4, why=EACH),
            Row("p99", f"call on {procs} procs p99", "ms"),
            Row("told", f"{_TOLD} broadcasts to {procs} procs and a call p50", "ms", times=4, why=EACH),
        )
        options = {"procs": procs, "calls": 20 if quick else 100}
        found.append(Plan(rows, 2 if quick else 10, options, ALL, note=TOLD))
    return found
