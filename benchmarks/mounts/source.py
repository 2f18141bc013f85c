"""`python -m benchmarks.mounts.source`: a source in a process of its own, as a keeper is one.

Orders come on standard input: `open DIRECTORY SOCKET`, `barrier FOLLOWER ...`, `state`; answers are JSON.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from milkweed.runtime.call import serve
from milkweed.runtime.mounts import FEED, Feed, Followers, Workspace, open_workspace
from milkweed.runtime.tasks import background_tasks


class Served:
    """One tree on one socket."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.workspace: Workspace | None = None
        self.followers = Followers()

    async def open(self, directory: Path, socket: Path) -> None:
        await self.stack.aclose()
        started = time.perf_counter()
        self.workspace = await self.stack.enter_async_context(open_workspace(directory))
        tasks = await self.stack.enter_async_context(background_tasks())
        actors = {FEED: Feed(self.workspace, self.followers)}
        await tasks.start(lambda task_status: serve(socket, actors, role="keeper", task_status=task_status))
        say(opened_s=time.perf_counter() - started, entries=len(self.workspace.manifest))

    async def barrier(self, *names: str) -> None:
        assert self.workspace is not None
        started = time.perf_counter()
        revision = await self.workspace.barrier()
        local_s = time.perf_counter() - started
        behind = await self.followers.acknowledged(revision, names, within_s=30.0)
        say(local_s=local_s, all_s=time.perf_counter() - started, behind=behind)


async def run() -> None:
    say(ready=True)
    served = Served()
    async with served.stack:
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            order, *words = line.split()
            if order == "open":
                await served.open(Path(words[0]), Path(words[1]))
            elif order == "barrier":
                await served.barrier(*words)
            else:
                say(sent=served.workspace.bytes_read if served.workspace else 0)


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    anyio.run(run)
