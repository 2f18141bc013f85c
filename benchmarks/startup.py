"""What the server costs beside an empty one of the same SDK: its start, and a call that does little."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from mcp import Client, StdioServerParameters

from .harness import Lab, Line, empty_server, measure, open_lab, ratio, serve_parameters

__all__ = ["run"]

_WARM_UP = 20


async def run(*, quick: bool) -> AsyncIterator[Line]:
    async for line in _start(pairs=4 if quick else 16):
        yield line
    async with open_lab() as lab, Client(empty_server()) as empty:
        calls = 60 if quick else 300
        async for line in _call(lab, empty, calls, "no mesh"):
            yield line
        async with lab.mesh("bench", 1, 1):
            async for line in _call(lab, empty, calls, "one live mesh"):
                yield line


async def _start(pairs: int) -> AsyncIterator[Line]:
    root = Path(tempfile.mkdtemp(prefix="milkweed-bench-"))
    ours: list[float] = []
    theirs: list[float] = []
    samples = {"ours": (ours, serve_parameters(root)), "theirs": (theirs, empty_server())}
    try:
        for parameters in (serve_parameters(root), empty_server()):
            await _until_listed(parameters)  # compiled files and the index are there from now on
        for pair in range(pairs):
            # Whoever goes first may find the machine in another state: they take turns.
            for which in ("ours", "theirs") if pair % 2 else ("theirs", "ours"):
                values, parameters = samples[which]
                values.append(await _until_listed(parameters))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    yield measure("start", "milkweed serve: start to tools/list", "s", ours)
    yield measure("start", "empty SDK server: start to tools/list", "s", theirs)
    yield ratio("start", "start to tools/list, ours / empty", ours, theirs, 1.3, "paired, taking turns")


async def _until_listed(parameters: StdioServerParameters) -> float:
    started = time.perf_counter()
    async with Client(parameters) as client:
        await client.list_tools()
        return time.perf_counter() - started


async def _call(lab: Lab, empty: Client, calls: int, where: str) -> AsyncIterator[Line]:
    ours: list[float] = []
    theirs: list[float] = []
    for at in range(calls + _WARM_UP):
        if at % 2:
            ours.append((await lab.call("list_meshes")).elapsed_s)
            theirs.append(await _nothing(empty))
        else:
            theirs.append(await _nothing(empty))
            ours.append((await lab.call("list_meshes")).elapsed_s)
    ours, theirs = ours[_WARM_UP:], theirs[_WARM_UP:]
    yield measure("call", f"list_meshes, {where}", "ms", [1000 * value for value in ours])
    yield measure("call", "empty tool, beside it", "ms", [1000 * value for value in theirs])
    target = 1.5 if where == "no mesh" else None
    yield ratio("call", f"list_meshes / empty tool, {where}", ours, theirs, target, "calls interleaved")


async def _nothing(client: Client) -> float:
    started = time.perf_counter()
    await client.call_tool("nothing")
    return time.perf_counter() - started
