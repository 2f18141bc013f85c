"""10,000 `call_one` at once to one actor."""

from __future__ import annotations

import asyncio
import time

from ..api import SIDE, in_thread, spawn, start_procs, stop
from ..plan import ALL, Plan, Program, Row
from .call import Echo

__all__ = ["Measured", "plans"]


class Measured(Program):
    """`calls` at once, a sample."""

    def __init__(self, calls: int) -> None:
        self._calls = calls

    async def open(self) -> None:
        self._procs = await start_procs(1)
        self._one = (await spawn(self._procs, "echo", Echo)).slice(gpus=0)
        await self._one.awaited.call_one(0)

    async def sample(self) -> dict[str, float]:
        started = time.perf_counter()
        answers = await asyncio.gather(*[self._one.awaited.call_one(n) for n in range(self._calls)])
        figures = {"awaited": self._calls / (time.perf_counter() - started)}
        if answers != list(range(self._calls)):
            raise RuntimeError("answers are not those of the calls")
        if SIDE != "bare":
            figures["got"] = await in_thread(self._gets)
        return figures

    def _gets(self) -> float:
        started = time.perf_counter()
        for answer in [self._one.awaited.call_one(number) for number in range(self._calls)]:
            answer.get()
        return self._calls / (time.perf_counter() - started)

    async def close(self) -> None:
        await stop(self._procs)


def plans(*, quick: bool) -> list[Plan]:
    calls = 1_000 if quick else 10_000
    rows = (
        Row("awaited", f"{calls:,} concurrent call_one, awaited", "calls/s", times=3, more=True),
        Row("got", f"{calls:,} concurrent call_one, .get()", "calls/s", times=3, more=True),
    )
    return [Plan(rows, 2 if quick else 7, {"calls": calls}, ALL)]
