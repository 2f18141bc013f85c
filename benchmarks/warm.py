"""Warm starts: from the request to the first line of a torch program, and what a warm rank weighs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator

import psutil

from .harness import MIB, Lab, Line, measure, open_lab

__all__ = ["first_line", "run", "until_warm"]

_RANKS = 2
_READY_S = 120.0
_FIRST = re.compile(r"first line at ([\d.]+)")


async def run(*, quick: bool) -> AsyncIterator[Line]:
    times = 4 if quick else 20
    async with open_lab(MILKWEED_WARM_MODULES="torch") as lab, lab.mesh("bench", 1, _RANKS) as mesh:
        script = lab.workload("first_line.py")
        cold = [await first_line(lab, mesh, script, warm=False) for _ in range(max(3, times // 4))]
        await until_warm(lab, mesh)
        warm = [await first_line(lab, mesh, script, warm=True) for _ in range(times)]
        note = "2 ranks, the last one's line after import torch"
        yield measure("warm", "cold run: request to first line", "s", cold, None, note)
        yield measure("warm", "warm run: request to first line", "s", warm, 0.1, note)
        sizes = await _sizes(lab, mesh, script)
        yield measure("warm", "idle warm rank of torch, PSS", "MiB", [pss for pss, _ in sizes], None, "of 2")
        yield measure(
            "warm", "idle warm rank of torch, private", "MiB", [own for _, own in sizes], None, "of 2"
        )


async def first_line(lab: Lab, mesh: str, script: str, *, warm: bool) -> float:
    """Seconds from the request to the last rank's line after `import torch`."""
    asked = time.time()
    run = await lab.start(mesh, ["python", script], options={"warm": warm})
    try:
        await lab.printed(run, "first line", 60.0)
        return max([await _printed_at(lab, run, rank) for rank in range(_RANKS)]) - asked
    finally:
        answer = await lab.call("cancel_run", run=run)
        expected = "warm" if warm else "cold"
        if answer.fields.get("start") != expected:
            raise RuntimeError(f"{run} is not {expected}: {answer.text}")


async def _printed_at(lab: Lab, run: str, rank: int) -> float:
    while True:
        answer = await lab.call("read_run_output", run=run, ranks=str(rank), cursor="start")
        if found := _FIRST.search(answer.text):
            return float(found[1])


async def until_warm(lab: Lab, mesh: str) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        answer = await lab.call("run_on_mesh", mesh=mesh, command=["python", "-c", "pass"])
        if answer.fields.get("start") == "warm":
            return
    raise TimeoutError(f"no starter: {answer.text}")


async def _sizes(lab: Lab, mesh: str, script: str) -> list[tuple[float, float]]:
    run = await lab.start(mesh, ["python", script])
    await lab.printed(run, "first line", 60.0)
    sizes = []
    for process in psutil.process_iter(["environ"]):
        environ = process.info["environ"] or {}
        if environ.get("MILKWEED_RUN") == run and process.pid != os.getpid():
            memory = process.memory_full_info()
            sizes.append((memory.pss / MIB, memory.uss / MIB))
    await lab.call("cancel_run", run=run)
    return sizes
