"""Stack dumps of hung ranks: of torch ranks in a real deadlock, and of many plain Python ones."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

import milkweed.server.demo

from .harness import Lab, Line, measure, open_lab

__all__ = ["run"]

GIB = 1024**3
_TORCH_RANK_BYTES = 200 * 1024**2
_SETTLED_DUMPS = 30


async def run(*, quick: bool) -> AsyncIterator[Line]:
    dumps = 4 if quick else 15
    async with open_lab() as lab:
        demo = Path(milkweed.server.demo.__file__).resolve().parent
        shutil.copy(demo / "workspace" / "train.py", lab.workspace)
        lab.workload("hung.py")
        async with lab.mesh("torch4", 2, 2) as mesh:
            run = await lab.start(mesh, ["python", "train.py"])
            await lab.printed(run, "step +36", 120)
            async for line in _dump(lab, run, dumps, "4 hung torch ranks", 0.5, 1.5):
                yield line
        async with lab.mesh("plain32", 4, 8) as mesh:
            run = await lab.start(mesh, ["python", "hung.py"])
            await lab.printed(run, "the others wait", 60)
            async for line in _dump(lab, run, dumps, "32 hung Python ranks", 2.0, 2.0):
                yield line
        if quick:
            return
        if psutil.virtual_memory().available < 32 * _TORCH_RANK_BYTES + 2 * GIB:
            print("stacks: too little memory for 32 torch ranks; that line is left out")
            return
        async with lab.mesh("torch32", 4, 8) as mesh:
            # 171 batches are no multiple of 32: this deadlocks too, after its first steps.
            run = await lab.start(mesh, ["python", "train.py"])
            await lab.printed(run, "step +0", 300)
            async for line in _dump(lab, run, dumps, "32 hung torch ranks", 2.0, 2.0):
                yield line


async def _dump(
    lab: Lab, run: str, dumps: int, what: str, seconds: float, kilobytes: float
) -> AsyncIterator[Line]:
    await _until_settled(lab, run)
    answers = [await lab.call("stack_dump", target=run) for _ in range(dumps)]
    if any("elsewhere" not in answer.text for answer in answers):
        raise RuntimeError(f"a dump does not say who is elsewhere: {answers[-1].text}")
    yield measure("stacks", f"stack_dump, {what}", "s", [answer.elapsed_s for answer in answers], seconds)
    yield measure(
        "stacks", f"stack_dump, {what}, size", "KB", [answer.kilobytes for answer in answers], kilobytes
    )


async def _until_settled(lab: Lab, run: str) -> None:
    before = ""
    for _ in range(_SETTLED_DUMPS):
        text = (await lab.call("stack_dump", target=run)).text
        if text == before and "elsewhere" in text:
            return
        before = text
    raise TimeoutError(f"the ranks do not come to rest: {before}")
