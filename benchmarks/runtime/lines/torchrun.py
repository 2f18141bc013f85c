"""Two ranks of a torch program in fresh processes: from the request to the line after `import torch`."""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from ..api import SIDE, spawn, start_procs, stop
from ..plan import Plan, Program, Row

__all__ = ["Measured", "plans"]

_RANKS = 2
_SCRIPT = """
import os, time
import torch
at = time.time()
with open(f"first-{os.environ['RANK']}", "w") as file:
    file.write(str(at))
"""


class Measured(Program):
    """Ours through `run_on_mesh`, as an agent does; Monarch's through its `SPMDActor`."""

    async def open(self) -> None:
        self._ours: Any = None
        if SIDE == "ours":
            from ... import warm
            from ...harness import open_lab

            self._ends = AsyncExitStack()
            lab = await self._ends.enter_async_context(open_lab(MILKWEED_WARM_MODULES="torch"))
            mesh = await self._ends.enter_async_context(lab.mesh("bench", 1, _RANKS))
            script = lab.workload("first_line.py")
            await warm.until_warm(lab, mesh)
            self._ours = lambda: warm.first_line(lab, mesh, script, warm=True)
        else:
            Path("first.py").write_text(_SCRIPT)
            await stop(await start_procs(1))

    async def sample(self) -> dict[str, float]:
        if self._ours is not None:
            return {"fresh": await self._ours()}
        from monarch.spmd import SPMDActor

        started = time.time()
        procs = await start_procs(_RANKS)
        actors = await spawn(procs, "spmd", SPMDActor)
        address, port = await actors.slice(gpus=0).get_host_port.call_one(None)
        fresh = await self._run(actors, address, port, started)
        again = await self._run(actors, address, port, time.time())
        await stop(procs)
        return {"fresh": fresh, "again": again}

    async def _run(self, actors: Any, address: str, port: int, started: float) -> float:
        await actors.main.call(address, port, [os.path.abspath("first.py")])
        return max(float(Path(f"first-{rank}").read_text()) for rank in range(_RANKS)) - started

    async def close(self) -> None:
        if self._ours is not None:
            await self._ends.aclose()


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("fresh", "2-rank torch run to its first line, warm", "s", 0.1, 49),
        Row("again", "the same again in the same processes", "s"),
    )
    return [Plan(rows, 2 if quick else 10, note="without a process group", setup_s=180)]
