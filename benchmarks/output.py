"""A rank that prints 100 MB/s: what our processes and the disk hold of it, and whether it can be stopped."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from .harness import MIB, Lab, Line, Role, measure, open_lab, worst

__all__ = ["run"]

RATE_MB_S = 100
CAP_MIB = 64
GROWTH_MIB = 32
_SAMPLE_S = 0.1


async def run(*, quick: bool) -> AsyncIterator[Line]:
    growths: dict[Role, list[float]] = {"server": [], "keeper": [], "guard": [], "agent": []}
    blocks: list[float] = []
    rates: list[float] = []
    reads: list[float] = []
    cancels: list[float] = []
    async with open_lab() as lab:
        script = lab.workload("flood.py")
        async with lab.mesh("flood", 1, 1) as mesh:
            await lab.call("run_on_mesh", mesh=mesh, command="true")
            before = _rss(lab)
            for _ in range(1 if quick else 3):
                seconds = 3 if quick else 10
                run = await lab.start(mesh, ["python", script, str(RATE_MB_S)])
                await lab.printed(run, "^0", 20)
                file = _output_file(lab, run)
                size, began = file.stat().st_size, time.perf_counter()
                most, held = await _watch(lab, run, file, seconds, reads)
                rates.append((file.stat().st_size - size) / 1e6 / (time.perf_counter() - began))
                blocks.append(held)
                cancelled = await lab.call("cancel_run", run=run)
                if cancelled.fields["state"] != "cancelled":
                    raise RuntimeError(f"not cancelled: {cancelled.text}")
                cancels.append(cancelled.elapsed_s)
                for role, processes in most.items():
                    growths[role] += [rss - before[pid] for pid, rss in processes.items() if pid in before]
    yield measure("flood", "what the rank printed", "MB/s", rates, note=f"asked for {RATE_MB_S}")
    for role, values in growths.items():
        yield worst("flood", f"growth of the {role}, RSS, at most", "MB", values, GROWTH_MIB)
    yield worst("flood", "allocated blocks of its file, at most", "MiB", blocks, CAP_MIB)
    yield measure("flood", "read_run_output meanwhile", "s", reads)
    yield worst("flood", "cancel_run meanwhile, at most", "s", cancels, 1.0)


def _rss(lab: Lab) -> dict[int, float]:
    return {
        process.pid: process.memory_info().rss / MIB
        for processes in lab.processes().values()
        for process in processes
    }


def _output_file(lab: Lab, run: str) -> Path:
    (file,) = (lab.root / "state").glob(f"meshes/*/hosts/0/runs/{run}/rank-0.out")
    return file


async def _watch(
    lab: Lab, run: str, file: Path, seconds: float, reads: list[float]
) -> tuple[dict[Role, dict[int, float]], float]:
    """The highest RSS of each of our processes, and the most MiB that the file's directory held."""
    ours = lab.processes()
    most: dict[Role, dict[int, float]] = {role: {} for role in ours}
    held = 0.0
    deadline = anyio.current_time() + seconds
    while anyio.current_time() < deadline:
        for role, processes in ours.items():
            for process in processes:
                now = process.memory_info().rss / MIB
                most[role][process.pid] = max(now, most[role].get(process.pid, 0.0))
        held = max(held, _allocated_mib(file.parent))
        if len(reads) < 10:
            reads.append((await lab.call("read_run_output", run=run)).elapsed_s)
        await anyio.sleep(_SAMPLE_S)
    return most, held


def _allocated_mib(directory: Path) -> float:
    return sum(entry.stat().st_blocks * 512 for entry in os.scandir(directory)) / MIB
