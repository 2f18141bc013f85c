"""Hosts whose files are served from this process, and the gather mount of them, in a process of its own.

The hosts run on the test's loop: whatever asks the mount must do so in a thread (`aside`) or in a process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio

from milkweed.runtime.actor import endpoint
from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.call import serve
from milkweed.runtime.gather import GatherConfig
from milkweed.runtime.mounts import MountProcess, open_mount
from milkweed.runtime.services.live_files import LiveFiles
from milkweed.runtime.tasks import background_tasks

DEADLINE_S = 60.0


class Host(LiveFiles):
    """Counts what it is asked; while `hangs` is set, it answers nothing at all."""

    def __init__(self, directory: Path, **more: Any) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.asked: Counter[str] = Counter()
        self.hangs: anyio.Event | None = None
        super().__init__(cast("HostContext", _Context(str(directory))), **more)

    @endpoint
    async def ping(self) -> None:
        if self.hangs is not None:
            await self.hangs.wait()
        await super().ping()

    async def _in_thread(self, root: str, below: bytes, look: Any) -> Any:
        self.asked[look.__qualname__.split(".")[1]] += 1
        if self.hangs is not None:
            await self.hangs.wait()
        return await super()._in_thread(root, below, look)


@dataclass(frozen=True)
class _Context:
    workspace: str

    def resolve(self, path: str) -> str:
        return HostContext.resolve(cast("HostContext", self), path)


@dataclass
class Stage:
    """Host N has its own directory, `hN`, as its workspace; the mount is at `m`."""

    root: Path
    hosts: list[Host] = field(default_factory=list)
    doors: list[anyio.CancelScope] = field(default_factory=list)
    process: MountProcess | None = None

    @property
    def mount(self) -> Path:
        return self.root / "m"

    def config(self, remote: str = ".", **more: Any) -> GatherConfig:
        addresses = tuple((number, str(self.root / f"s{number}")) for number in range(len(self.hosts)))
        return GatherConfig(mountpoint=str(self.mount), remote=remote, hosts=addresses, **more)

    def said(self) -> dict[str, Any]:
        """What the process said last of itself."""
        assert self.process is not None
        return self.process.state.said or {}

    async def next_said(self) -> dict[str, Any]:
        """What it says next, which is not older than the call."""
        before = self.said()
        with anyio.fail_after(DEADLINE_S):
            while (said := self.said()) is before or said["event"] != "state":
                await anyio.sleep(0.01)
        first = said
        with anyio.fail_after(DEADLINE_S):
            while (said := self.said()) is first:
                await anyio.sleep(0.01)
        return said


@asynccontextmanager
async def served(host: Host, socket: Path) -> AsyncIterator[None]:
    async with background_tasks() as tasks:
        actors = {"LiveFiles": host}
        await tasks.start(lambda task_status: serve(socket, actors, role="agent", task_status=task_status))
        yield


@asynccontextmanager
async def staged(root: Path, hosts: int = 2) -> AsyncIterator[Stage]:
    """Hosts without a mount so far."""
    stage = Stage(root)
    with anyio.fail_after(DEADLINE_S * 2):
        async with background_tasks() as tasks:
            for number in range(hosts):
                host = Host(root / f"h{number}")
                stage.hosts.append(host)
                await tasks.start(_serve, stage, host, root / f"s{number}")
            yield stage


async def _serve(stage: Stage, host: Host, socket: Path, *, task_status: Any) -> None:
    """Until its door is shut."""
    with anyio.CancelScope() as door:
        stage.doors.append(door)
        async with served(host, socket):
            task_status.started()
            await anyio.sleep_forever()
    socket.unlink(missing_ok=True)


@asynccontextmanager
async def gathered(root: Path, hosts: int = 2, remote: str = ".", **more: Any) -> AsyncIterator[Stage]:
    async with staged(root, hosts) as stage, open_mount(stage.config(remote, **more)) as stage.process:
        yield stage
