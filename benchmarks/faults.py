"""A host agent killed with -9: how soon a client sees it, and how soon nothing of it is left."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import anyio
import psutil

from milkweed.server.demo import leftovers

from .harness import Lab, Line, measure, open_lab, poll, stopwatch

__all__ = ["run"]


async def run(*, quick: bool) -> AsyncIterator[Line]:
    seen: list[float] = []
    reaped: list[float] = []
    unharmed: list[bool] = []
    async with open_lab() as lab:
        for at in range(2 if quick else 10):
            async with lab.mesh(f"fault-{at}", 2, 2) as mesh:
                await _kill_one(lab, mesh, seen, reaped, unharmed)
    if not all(unharmed):
        raise RuntimeError("ranks of the other host ended too")
    yield measure("fault", "agent killed with -9: seen by a client", "s", seen, 1.0, "mesh_status in a loop")
    yield measure(
        "fault", "agent killed with -9: its ranks ended", "s", reaped, note="the other host's go on"
    )


async def _kill_one(
    lab: Lab, mesh: str, seen: list[float], reaped: list[float], unharmed: list[bool]
) -> None:
    await lab.start(mesh, ["sleep", "1000"], options={"keep_going": True})
    agent = lab.processes()["agent"][0]
    doomed = agent.children(recursive=True)
    others = [pid for pid in _ranks(lab) if pid not in {process.pid for process in doomed}]
    agent.send_signal(signal.SIGKILL)

    async def degraded() -> bool:
        return (await lab.call("mesh_status", mesh=mesh)).fields["state"] == "degraded"

    async def watch() -> None:
        reaped.append(await poll(lambda: not any(map(_lives, doomed)), timeout_s=20))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        seen.append(await stopwatch(lambda: poll(degraded, timeout_s=20)))
    unharmed.append(len(others) == 2 and all(psutil.pid_exists(pid) for pid in others))


def _ranks(lab: Lab) -> list[int]:
    return [pid for pid in leftovers.find(lab.root) if psutil.Process(pid).name() == "sleep"]


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
