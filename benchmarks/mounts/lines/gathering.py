"""A directory of two hosts at the client: a little of a large file, small ones, a long listing, all of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...runtime.api import SIDE
from ...runtime.plan import ALL, Plan, Program, Row
from ..gathers import open_gather
from ..trees import list_and_stat, make_big, read, read_each, write

__all__ = ["Measured", "plans"]

_HOSTS = 2
_GB, _MB = 1e9, 1e6


class Measured(Program):
    def __init__(self, mib: int, tiny: int, listed: int) -> None:
        self._mib, self._tiny, self._listed = mib, tiny, listed
        self._number = 0

    async def open(self) -> None:
        self._tree = Path.cwd() / "tree"
        for name, count in (("tiny", self._tiny), ("listed", self._listed)):
            (self._tree / name).mkdir(parents=True)
            for number in range(count):
                write(self._tree / name / f"{number:05d}", b"x" * 100)
        make_big(self._tree / "big", self._mib)
        self._gather = await open_gather(_HOSTS, self._tree)

    async def sample(self) -> dict[str, float]:
        gather = self._gather
        figures: dict[str, float] = {}
        started = time.perf_counter()
        path = await gather.mount(self._tree)
        if SIDE != "bare":
            figures["open"] = time.perf_counter() - started
        try:
            await asyncio.to_thread(os.stat, path)
            before = gather.memory()
            figures["first"] = await _timed(partial(_first, path / "big")) * 1e3
            if SIDE != "bare":
                figures["memory"] = max(0, gather.memory() - before) / _MB
            figures["tiny"] = await _timed(partial(read_each, path / "tiny"))
            if SIDE != "monarch":  # which is not done in a minute
                figures["listed"] = await _timed(partial(list_and_stat, path / "listed"))
            figures["whole"] = self._mib * 1.048576e6 / _GB / await _timed(partial(read, path / "big"))
        finally:
            await gather.unmount()
        self._number += 1
        to = Path.cwd() / f"fetched{self._number}"
        started = time.perf_counter()
        if await gather.fetch(self._tree / "big", to):
            figures["fetched"] = self._mib * 1.048576e6 / _GB / (time.perf_counter() - started)
            started = time.perf_counter()
            if SIDE == "ours":
                await gather.fetch(self._tree / "tiny", to)
                figures["fetched_tiny"] = time.perf_counter() - started
        shutil.rmtree(to, ignore_errors=True)
        return figures

    async def close(self) -> None:
        await self._gather.end()


def _first(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    if len(os.read(descriptor, 4096)) != 4096:
        raise RuntimeError("less was read")
    os.close(descriptor)


async def _timed(work: Callable[[], object]) -> float:
    """Seconds; beside this process's loop, which may be what answers."""
    started = time.perf_counter()
    await asyncio.to_thread(work)
    return time.perf_counter() - started


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("open", "gather mount of 2 hosts, open", "s"),
        Row("first", "gather: first 4 KB of a 200 MB file", "ms", 10, 300),
        Row("memory", "memory that this took at the client", "MB", 2, 193),
        Row("tiny", "gather: 200 tiny files", "s", 0.2, 10),
        Row("listed", "gather: a directory of 10,000 files, listed with attributes", "s"),
        Row("whole", "gather: 200 MB, cold", "GB/s", more=True),
        Row("fetched", "fetch_files: 200 MB, hashes compared; bare is a copy", "GB/s", more=True),
        Row("fetched_tiny", "fetch_files: 200 tiny files", "s"),
    )
    options = {"mib": 191, "tiny": 200, "listed": 10_000}
    note = "Monarch lists such a directory in more than a minute: not measured"
    return [Plan(rows, 2 if quick else 10, options, ALL, setup_s=180, timeout_s=120, note=note)]
