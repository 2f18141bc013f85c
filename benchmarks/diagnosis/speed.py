"""How long a diagnosis takes: of 8 torch ranks in a deadlock, and of 64 hosts, one of them silent too."""

from __future__ import annotations

import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

import milkweed.server.demo

from ..harness import GIB, Lab, Line, measure, open_lab

__all__ = ["run"]

_HOSTS = 64
_ENOUGH_BYTES = 6 * GIB
_SETTLED = 60


async def run(*, quick: bool) -> AsyncIterator[Line]:
    times = 3 if quick else 10
    async with open_lab() as lab:
        demo = Path(milkweed.server.demo.__file__).resolve().parent
        shutil.copy(demo / "workspace" / "train.py", lab.workspace)
        async with lab.mesh("ranks8", 2, 4) as mesh:
            # 171 batches are no multiple of 8.
            run = await lab.start(mesh, ["python", "train.py"])
            await lab.printed(run, "step +18", 180)
            await _until_told(lab, run, "left_early")
            async for line in _told(lab, run, times, "left_early", "8 hung torch ranks", 3.0):
                yield line
        if psutil.virtual_memory().available < _ENOUGH_BYTES:
            print(f"speed: too little memory for {_HOSTS} hosts; that line is left out")
            return
        lab.workload("hung.py")
        async with lab.mesh("hosts64", _HOSTS, 1) as mesh:
            run = await lab.start(mesh, ["python", "hung.py"])
            await lab.printed(run, "the others wait", 120)
            async for line in _told(lab, run, times, "", f"{_HOSTS} hosts with a hung rank each", 6.0):
                yield line
            agents = lab.processes()["agent"]
            guards = {process.pid for process in lab.processes()["guard"]}
            silent = next(process for process in agents if process.ppid() in guards)
            silent.send_signal(signal.SIGSTOP)
            try:
                async for line in _told(lab, run, times, "", f"{_HOSTS} hosts, 1 of them stopped", None):
                    yield line
            finally:
                silent.send_signal(signal.SIGCONT)


async def _until_told(lab: Lab, run: str, cause: str) -> None:
    for _ in range(_SETTLED):
        answer = await lab.call("diagnose_run", run=run)
        if answer.fields.get("cause") == cause:
            return
    raise TimeoutError(f"{cause} is not told: {answer.text}")


async def _told(
    lab: Lab, run: str, times: int, cause: str, what: str, seconds: float | None
) -> AsyncIterator[Line]:
    answers = [await lab.call("diagnose_run", run=run) for _ in range(times)]
    causes = {str(answer.fields.get("cause", "")) for answer in answers}
    if cause and causes != {cause}:
        raise RuntimeError(f"told {causes}: {answers[-1].text}")
    note = f"told: {', '.join(sorted(causes)) or 'nothing'}"
    if notes := answers[-1].fields.get("notes"):
        note += f" ({'; '.join(notes)})"
    yield measure("speed", f"diagnose_run, {what}", "s", [one.elapsed_s for one in answers], seconds, note)
    sizes = [1024 * one.kilobytes for one in answers]
    yield measure("speed", f"diagnose_run, {what}, size", "bytes", sizes, 1500.0)
