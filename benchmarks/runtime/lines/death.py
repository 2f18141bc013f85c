"""From a SIGKILL of a proc to the callback of what supervises it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..api import SIDE, Actor, endpoint, spawn, start_procs, stop
from ..plan import BOTH, Plan, Program, Row

__all__ = ["Measured", "plans"]

_LATEST_S = 60.0


class Victim(Actor):
    @endpoint
    async def pid(self) -> int:
        return os.getpid()


class Measured(Program):
    """Four procs a sample, one killed at a random time of Monarch's poll, the others must still answer."""

    async def open(self) -> None:
        self._random = random.Random(1)

    async def sample(self) -> dict[str, float]:
        procs = await start_procs(4)
        actors = await spawn(procs, "victim", Victim)
        pids = list((await actors.pid.call()).values())
        async with _told(procs) as told:
            await asyncio.sleep(self._random.uniform(0.3, 1.3))
            killed = time.monotonic()
            os.kill(pids[1], signal.SIGKILL)
            at = await asyncio.wait_for(told, _LATEST_S)
        for gpu in (0, 2, 3):
            if await asyncio.wait_for(actors.slice(gpus=gpu).pid.call_one(), 10) != pids[gpu]:
                raise RuntimeError("a survivor is another process now")
        await stop(procs)
        return {"ms": (at - killed) * 1e3}


@asynccontextmanager
async def _told(procs: Any) -> AsyncIterator[asyncio.Future[float]]:
    """When the callback came, on the monotonic clock."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[float] = loop.create_future()

    def tell(at: float) -> None:
        if not told.done():
            told.set_result(at)

    if SIDE == "monarch":
        import monarch.actor

        monarch.actor.unhandled_fault_hook = lambda _: loop.call_soon_threadsafe(tell, time.monotonic())
        yield told
        return

    async def follow(failures: Any) -> None:
        async for _ in failures:
            tell(time.monotonic())

    async with procs.failures() as failures:
        following = asyncio.create_task(follow(failures))
        try:
            yield told
        finally:
            following.cancel()


def plans(*, quick: bool) -> list[Plan]:
    fast = {
        "HYPERACTOR_MESH_SUPERVISION_POLL_FREQUENCY": "1s",
        "HYPERACTOR_MESH_SUPERVISION_WATCHDOG_TIMEOUT": "1h",
    }
    row = Row("ms", "SIGKILL to callback; Monarch polls every 1 s", "ms", 50)
    found = [Plan((row,), 2 if quick else 10, env={"monarch": fast}, note="its fastest safe poll")]
    row = Row("ms", "SIGKILL to callback; Monarch as it comes", "ms", 50)
    return [*found, Plan((row,), 1 if quick else 5, sides=BOTH, note="it polls every 10 s")]
