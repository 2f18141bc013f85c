"""1,000 files and one of 200 MB on two hosts: opened, read, read again, edited."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from ...runtime.api import SIDE
from ...runtime.plan import ALL, Plan, Program, Row
from ..hosts import Ours, open_hosts, visible_s
from ..trees import make_big, make_small, read, read_each, timed, write

__all__ = ["Measured", "plans"]

_HOSTS = 2
_REST_S = 1.0
_GB = 1e9


class Measured(Program):
    """`edits` are made, and seen, in each round."""

    def __init__(self, files: int, mib: int, edits: int) -> None:
        self._files, self._mib, self._edits = files, mib, edits
        self._number = 0

    async def open(self) -> None:
        self._tree = Path.cwd() / "tree"
        make_small(self._tree / "small", self._files)
        make_big(self._tree / "big", self._mib)
        self._hosts = await open_hosts(_HOSTS)

    async def sample(self) -> dict[str, float]:
        hosts = self._hosts
        started = time.perf_counter()
        await hosts.open(self._tree)
        figures = {} if SIDE == "bare" else {"open": time.perf_counter() - started}
        try:
            small = [timed(partial(read_each, hosts.path(host) / "small")) for host in range(_HOSTS)]
            figures["small"] = small[0]
            figures["ready"] = figures.get("open", 0.0) + sum(small)
            big = hosts.path(0) / "big"
            for metric in ("cold", "warm"):
                started = time.perf_counter()
                figures[metric] = read(big) / _GB / (time.perf_counter() - started)
            await asyncio.sleep(_REST_S)  # on all sides: nothing is left to do of the small files
            big, started = hosts.path(1) / "big", time.perf_counter()
            figures["rested"] = read(big) / _GB / (time.perf_counter() - started)
            if SIDE != "bare":
                figures["edit"] = await self._edited_ms()
            if isinstance(hosts, Ours):
                figures["barrier"] = self._barrier_ms(hosts)
        finally:
            await hosts.close()
        if SIDE == "bare":
            del figures["cold"], figures["rested"]
        return figures

    async def _edited_ms(self) -> float:
        took = []
        for _ in range(self._edits):
            self._number += 1
            text = b"%08d" % self._number
            started = time.perf_counter()
            write(self._tree / "small" / "edited", text)
            await self._hosts.edited()
            took.append(visible_s(self._hosts, _HOSTS, "small/edited", text, started))
        return sorted(took)[len(took) // 2] * 1e3

    def _barrier_ms(self, hosts: Ours) -> float:
        took = []
        for _ in range(self._edits):
            self._number += 1
            write(self._tree / "small" / "edited", b"%08d" % self._number)
            answer = hosts.lab.source.ask("barrier h0 h1")
            if answer["behind"]:
                raise RuntimeError(f"{answer['behind']} did not acknowledge")
            took.append(answer["all_s"])
        return sorted(took)[len(took) // 2] * 1e3

    async def close(self) -> None:
        await self._hosts.end()


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("open", "open a mount, 1,000 files + 200 MB, 2 hosts", "s", 0.2, 6),
        Row("ready", "that, and each host reads the 1,000 files", "s"),
        Row("small", "a host reads the 1,000 files, the first time", "s"),
        Row("cold", "200 MB through the mount, cold, right after the small files", "GB/s", 0.5, 5, more=True),
        Row("rested", "200 MB through the mount, cold, by itself", "GB/s", 0.5, 5, more=True),
        Row("warm", "200 MB through the mount, warm", "GB/s", 3, 11.5, more=True),
        Row("edit", "edit to visible on both hosts; Monarch: and its refresh", "ms", 20, 30),
        Row("barrier", "an edit, the barrier, both hosts acknowledge", "ms"),
    )
    options = {"files": 1_000, "mib": 191, "edits": 5}
    note = "Monarch sends small files when it opens, ours when they are read; bare is the directory itself"
    return [Plan(rows, 2 if quick else 10, options, ALL, note=note)]
