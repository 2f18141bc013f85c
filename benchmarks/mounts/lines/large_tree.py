"""50,000 files, one folder with 2,000: opened, listed, asked for attributes."""

from __future__ import annotations

import time
from pathlib import Path

from ...runtime.api import SIDE
from ...runtime.plan import ALL, Plan, Program, Row
from ..hosts import Ours, open_hosts
from ..trees import list_and_stat, make_small, timed, write

__all__ = ["Measured", "plans"]

_IN_ONE = 2_000


class Measured(Program):
    def __init__(self, files: int) -> None:
        self._files = files

    async def open(self) -> None:
        self._tree = Path.cwd() / "tree"
        make_small(self._tree, self._files - _IN_ONE)
        (self._tree / "many").mkdir()
        for number in range(_IN_ONE):
            write(self._tree / "many" / f"file_{number:04d}", b"x" * 64)
        self._hosts = await open_hosts(1)

    async def sample(self) -> dict[str, float]:
        hosts = self._hosts
        started = time.perf_counter()
        await hosts.open(self._tree)
        figures = {} if SIDE == "bare" else {"first": time.perf_counter() - started}
        if isinstance(hosts, Ours):
            await hosts.close()
            figures["again"] = timed(hosts.mount)
        elif SIDE == "monarch":
            figures["again"] = figures["first"]  # it keeps nothing of an earlier mount
        try:
            for metric in ("cold", "warm"):
                started = time.perf_counter()
                count = list_and_stat(hosts.path(0) / "many")
                figures[metric] = (time.perf_counter() - started) * 1e3
                if count != _IN_ONE:
                    raise RuntimeError(f"{count} names were listed")
        finally:
            await hosts.close()
        return figures

    async def close(self) -> None:
        await self._hosts.end()


def plans(*, quick: bool) -> list[Plan]:
    files = 5_000 if quick else 50_000
    rows = (
        Row("first", f"open a mount of {files:,} files, scan included", "s"),
        Row("again", f"open a mount of {files:,} files after the first scan", "s", 0.5),
        Row("cold", "list and stat 2,000 files of a folder, cold", "ms", 80),
        Row("warm", "list and stat 2,000 files of a folder, warm", "ms", 20),
    )
    return [Plan(rows, 2 if quick else 7, {"files": files}, ALL, timeout_s=120, setup_s=180)]
