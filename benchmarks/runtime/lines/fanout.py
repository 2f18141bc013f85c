"""`call` on all procs: a broadcast and the gathering of the replies."""

from __future__ import annotations

import time

from ..api import spawn, start_procs, stop
from ..figures import percentile
from ..plan import ALL, Plan, Program, Row
from .call import Echo

__all__ = ["Measured", "plans"]

_WARM_UP = 10

EACH = "every proc wakes, unpickles, runs and answers: 100-180 us of CPU each, nearly all of it on two cores"


class Measured(Program):
    """`calls` a sample, one at a time, each to all procs."""

    def __init__(self, procs: int, calls: int) -> None:
        self._count, self._calls = procs, calls

    async def open(self) -> None:
        self._procs = await start_procs(self._count)
        self._actors = await spawn(self._procs, "echo", Echo)
        for _ in range(_WARM_UP):
            await self._actors.awaited.call(0)

    async def sample(self) -> dict[str, float]:
        times = []
        for number in range(self._calls):
            started = time.perf_counter()
            answers = await self._actors.awaited.call(number)
            times.append((time.perf_counter() - started) * 1e3)
            if list(answers.values()) != [number] * self._count:
                raise RuntimeError(f"{number} came back as {list(answers.values())}")
        return {"p50": percentile(times, 50), "p99": percentile(times, 99)}

    async def close(self) -> None:
        await stop(self._procs)


def plans(*, quick: bool) -> list[Plan]:
    found = []
    for procs in (8, 32):
        rows = (
            Row("p50", f"call on {procs} procs p50", "ms", 5 if procs == 32 else None, 4, why=EACH),
            Row("p99", f"call on {procs} procs p99", "ms"),
        )
        options = {"procs": procs, "calls": 20 if quick else 100}
        found.append(Plan(rows, 2 if quick else 10, options, ALL))
    return found
