"""Stacks of 8 procs that wait in a sync endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from ..api import SIDE, Actor, endpoint, in_thread, spawn, start_procs, stop
from ..plan import Plan, Program, Row

__all__ = ["Measured", "plans"]

_PROCS = 8
_PLACE = "_wait_for_peer"


class Stuck(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def barrier(self, peer: str) -> None:
        self._wait_for_peer(peer)

    def _wait_for_peer(self, peer: str) -> None:
        while not os.path.exists(peer):
            time.sleep(0.1)


class Measured(Program):
    """One merged dump a sample; Monarch's are fetched at once from its admin address and not merged."""

    def __init__(self, dumps: int) -> None:
        self._dumps = dumps
        self._peer = os.path.join(os.getcwd(), "peer")
        self._job: Any = None

    async def open(self) -> None:
        if SIDE == "monarch":
            await self._open_monarch()
        else:
            self._procs = await start_procs(_PROCS)
            self._actors = await spawn(self._procs, "stuck", Stuck)
        self._calls = [self._actors.slice(gpus=gpu).barrier.call_one(self._peer) for gpu in range(_PROCS)]
        deadline = time.monotonic() + 30
        while True:
            await asyncio.sleep(0.2)
            try:
                await self._dump()
                return
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise

    async def sample(self) -> dict[str, float]:
        started = time.perf_counter()
        for _ in range(self._dumps):
            await self._dump()
        return {"s": (time.perf_counter() - started) / self._dumps}

    async def _dump(self) -> None:
        if SIDE == "monarch":
            texts = await asyncio.gather(*(in_thread(_fetch, url) for url in self._urls))
        else:
            from milkweed.tools.verdicts.stacks import group_stacks

            groups = group_stacks(await self._procs.stacks())
            texts = [" ".join(frame.function for frame in group.frames) for group in groups]
            if len(groups) != 1 or len(groups[0].ranks) != _PROCS:
                raise RuntimeError(f"not all of them are at one place: {texts}")
        places = sum(_PLACE in text for text in texts)
        if places != len(texts):
            raise RuntimeError(f"{places} of {len(texts)} dumps show where they wait: {texts[0][:300]}")

    async def _open_monarch(self) -> None:
        from monarch.job import ProcessJob

        self._job = ProcessJob({"hosts": 1})
        self._job.enable_admin()
        state = self._job.state(cached_path=None)
        self._procs = state.hosts.spawn_procs(per_host={"gpus": _PROCS}, name="stuck")
        self._actors = await spawn(self._procs, "stuck", Stuck)
        await self._actors.pid.call()
        base = f"{state.admin_url}/v1/"
        found: list[str] = []
        for host in json.loads(await in_thread(_fetch, base + "root"))["children"]:
            node = json.loads(await in_thread(_fetch, base + urllib.parse.quote(host, safe="")))
            found += [child for child in node["children"] if child.startswith("stuck")]
        if len(found) != _PROCS:
            raise RuntimeError(f"{len(found)} of {_PROCS} procs are known to its admin: {found}")
        self._urls = [f"{base}pyspy/{urllib.parse.quote(proc, safe='')}" for proc in found]

    async def close(self) -> None:
        Path(self._peer).touch()
        for call in self._calls:
            await call
        await stop(self._procs)
        if self._job is not None:
            self._job.kill()


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode(errors="replace"))


def plans(*, quick: bool) -> list[Plan]:
    rows = (Row("s", f"stacks of {_PROCS} procs; ours merged", "s", 0.5, 4.4),)
    return [Plan(rows, 2 if quick else 7, {"dumps": 1 if quick else 3})]
