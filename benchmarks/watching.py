"""What it costs to watch runs, how soon a hang is seen, and what a call of `milkweed.report` takes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from milkweed.runtime.agent.spool import Spool
from milkweed.runtime.records import HostEvent

from .harness import Lab, Line, measure, open_lab

__all__ = ["run"]

_RANKS = 4
_TICKS = os.sysconf("SC_CLK_TCK")


async def run(*, quick: bool) -> AsyncIterator[Line]:
    async for line in _reports(5 if quick else 15):
        yield line
    seconds, hangs = (15.0, 1) if quick else (60.0, 2)
    moving: dict[str, list[float]] = {"": [], "off": []}
    quiet: dict[str, list[float]] = {"": [], "off": []}
    seen: list[float] = []
    for _ in range(hangs):
        for watch, found in moving.items():
            async with open_lab(MILKWEED_WATCH=watch, MILKWEED_WARM_MODULES="") as lab:
                await _watch(lab, watch, seconds, found, quiet[watch], seen)
    target = 1.0
    for what, found in (("prints twice a second", moving), (f"its first {seconds:g} s of quiet", quiet)):
        cost = [ours - none for ours, none in zip(found[""], found["off"], strict=True)]
        note = "CPU of the host agent and its dumps, less that without a watch"
        yield measure("watching", f"watch of a torch rank, {what}", "% of a core", cost, target, note)
    if seen:
        yield measure("watching", "a deadlock is told after", "s", seen, 40.0)


async def _reports(rounds: int) -> AsyncIterator[Line]:
    found: dict[str, list[float]] = {"inside": [], "outside": []}
    async with open_lab(MILKWEED_WARM_MODULES="") as lab:
        lab.workload("reports.py")
        async with lab.mesh("reports", 1, 1) as mesh:
            for _ in range(rounds):
                run = await lab.start(mesh, ["python", "reports.py"])
                answer = await lab.call("wait_for_run", run=run, timeout_s=30)
                for name, value in re.findall(r"(inside|outside) (\d+\.\d+)", answer.text):
                    found[name].append(float(value))
    yield measure("watching", "milkweed.report, in a run", "us", found["inside"], 10.0)
    yield measure("watching", "milkweed.report, elsewhere", "us", found["outside"], 1.0)


async def _watch(
    lab: Lab, watch: str, seconds: float, moving: list[float], quiet: list[float], seen: list[float]
) -> None:
    """Adds what the host agent used for each rank, in percent of a core."""
    lab.workload("goes_quiet.py")
    async with lab.mesh("watched", 1, _RANKS) as mesh:
        run = await lab.start(mesh, ["python", "goes_quiet.py"])
        await lab.printed(run, "step 6", 120)
        ours = lab.processes()
        guards = {process.pid for process in ours["guard"]}
        (agent,) = [process for process in ours["agent"] if process.ppid() in guards]
        moving.append(await _use(agent.pid, seconds))
        (lab.workspace / "quiet").touch()
        await lab.printed(run, "quiet now", 30)
        at = time.time()
        quiet.append(await _use(agent.pid, seconds))
        if watch != "off" and seconds > 40:
            still = [event for event in _events(lab.root) if event.kind == "run_still"]
            seen += [event.at - at for event in still[:1]]
        (lab.workspace / "quiet").unlink()


async def _use(pid: int, seconds: float) -> float:
    before, started = _cpu_s(pid), time.monotonic()
    await anyio.sleep(seconds)
    used = _cpu_s(pid) - before
    return 100 * used / (time.monotonic() - started) / _RANKS


def _cpu_s(pid: int) -> float:
    """Of the process and of those of its children that have ended."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return sum(map(int, text[text.rindex(")") + 2 :].split()[11:15])) / _TICKS


def _events(root: Path) -> list[HostEvent]:
    (path,) = root.glob("**/hosts/0/spool.jsonl")
    return list(Spool.read(path))
