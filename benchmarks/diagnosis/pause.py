"""By how much looking at a rank holds it up: its longest gap between two stamps of time, around each look.

Time in which it waited for a processor is left out: that is what the machine does.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import anyio

from ..harness import Lab, Line, measure, open_lab

__all__ = ["run"]

_TARGET_MS = 20.0
_BETWEEN_S = 0.3

Window = tuple[float, float]


async def run(*, quick: bool) -> AsyncIterator[Line]:
    looks = 6 if quick else 25
    for torch in (False, True):
        async with open_lab() as lab:
            lab.workload("stamps.py")
            async with lab.mesh("paused", 1, 1) as mesh:
                async for line in _pauses(lab, mesh, looks, torch=torch):
                    yield line


async def _pauses(lab: Lab, mesh: str, looks: int, *, torch: bool) -> AsyncIterator[Line]:
    run = await lab.start(mesh, ["python", "stamps.py", *(["torch"] if torch else [])])
    await lab.printed(run, "stamping", 120)
    windows: dict[str, list[Window]] = {"stack_dump": [], "diagnose_run": [], "": []}
    for _ in range(looks):
        for tool, found in windows.items():
            started = time.time()
            if tool == "stack_dump":
                await lab.call(tool, target=run)
            elif tool:
                await lab.call(tool, run=run)
            else:
                await anyio.sleep(0.5)
            found.append((started, time.time()))
            await anyio.sleep(_BETWEEN_S)
    (lab.workspace / "stop").touch()
    await lab.call("wait_for_run", run=run, timeout_s=30)
    gaps = [(at, 1000 * gap) for at, gap in json.loads((lab.workspace / "gaps.json").read_text())]
    who = "a torch rank" if torch else "a Python rank"
    for tool, found in windows.items():
        held = [max((gap for at, gap in gaps if begun <= at <= over), default=0.0) for begun, over in found]
        if tool:
            note = "two looks and more" if tool == "diagnose_run" else ""
            yield measure("pause", f"{who} is held up by {tool}", "ms", held, _TARGET_MS, note)
        else:
            yield measure("pause", f"{who}, while nobody looks", "ms", held)
