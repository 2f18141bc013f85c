"""A directory of hosts at the client, by the means of each side."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..runtime.api import SIDE
from .memory import own_of

if TYPE_CHECKING:
    from milkweed.runtime.client import Mesh

__all__ = ["Gather", "open_gather"]


class Gather(Protocol):
    """`mount` shows a tree of all hosts, `unmount` ends that; `fetch` copies a file of one to a directory."""

    async def mount(self, tree: Path) -> Path:
        """Where the first host's is."""
        ...

    def memory(self) -> int:
        """What the process that shows it holds, in bytes; 0: there is none."""
        ...

    async def fetch(self, path: Path, to: Path, /) -> bool:
        """Whether this side can."""
        ...

    async def unmount(self) -> None: ...

    async def end(self) -> None: ...


async def open_gather(hosts: int, workspace: Path) -> Gather:
    """Of the side that this process is."""
    if SIDE == "monarch":
        return await _Monarch.start(hosts)
    return await _Ours.start(hosts, workspace) if SIDE == "ours" else _Plain()


class _Ours:
    """A mesh of its own, whose client is opened and closed by one task, as it must be."""

    def __init__(self, hosts: int, workspace: Path) -> None:
        self._hosts, self._workspace = hosts, workspace
        self._ending = asyncio.Event()
        self._mount = self._process = ""
        self._mesh: Mesh
        self._number = 0

    @classmethod
    async def start(cls, hosts: int, workspace: Path) -> _Ours:
        one = cls(hosts, workspace)
        opened: asyncio.Future[Mesh] = asyncio.get_running_loop().create_future()
        one._holding = asyncio.create_task(one._hold(opened))
        await asyncio.wait({one._holding, opened}, return_when=asyncio.FIRST_COMPLETED)
        if one._holding.done():
            await one._holding
        one._mesh = await opened
        return one

    async def _hold(self, opened: asyncio.Future[Mesh]) -> None:
        from milkweed.runtime.client import open_meshes
        from milkweed.runtime.paths import Places
        from milkweed.runtime.records import MeshSpec

        places = Places(Path.cwd() / "state", Path.cwd() / "run")
        for one in (places.state, places.runtime):
            one.mkdir(mode=0o700, exist_ok=True)
        async with open_meshes(places) as meshes:
            spec = MeshSpec("gather", self._hosts, 1, workspace=str(self._workspace))
            mesh = await meshes.allocate(spec)
            try:
                opened.set_result(mesh)
                await self._ending.wait()
            finally:
                await mesh.release()

    async def mount(self, tree: Path) -> Path:
        self._number += 1
        place = Path.cwd() / f"g{self._number}"
        self._mount = (await self._mesh.gather(str(tree), str(place))).spec.mount
        return place / "0"

    def memory(self) -> int:
        return own_of(_process_with("milkweed.runtime.gather.process", self._mount))

    async def fetch(self, path: Path, to: Path) -> bool:
        async def report(_: float, __: float | None, ___: str) -> None:
            """Nobody reads it."""

        await self._mesh.fetch(str(path), hosts=(0,), destination=str(to), report=report)
        return True

    async def unmount(self) -> None:
        await self._mesh.unmount(self._mount)

    async def end(self) -> None:
        self._ending.set()
        await self._holding


class _Monarch:
    """`gather_mount` of the hosts of a `ProcessJob`."""

    def __init__(self, job: Any, hosts: Any) -> None:
        self._job, self._hosts = job, hosts
        self._mount: Any = None
        self._number = 0

    @classmethod
    async def start(cls, count: int) -> _Monarch:
        from monarch.job import ProcessJob

        job = ProcessJob({"hosts": count})
        hosts = (await asyncio.to_thread(job.state, cached_path=None)).hosts
        await hosts.spawn_procs(name="first").initialized
        return cls(job, hosts)

    async def mount(self, tree: Path) -> Path:
        from monarch.gather_mount import gather_mount

        self._number += 1
        place = Path.cwd() / f"g{self._number}"
        self._mount = await asyncio.to_thread(gather_mount, self._hosts, str(tree), str(place))
        return place / min(await asyncio.to_thread(os.listdir, place))

    def memory(self) -> int:
        return own_of(os.getpid())

    async def fetch(self, _: Path, __: Path, /) -> bool:
        return False

    async def unmount(self) -> None:
        await asyncio.to_thread(self._mount.close)

    async def end(self) -> None:
        self._job.kill()


class _Plain:
    """The directory itself."""

    async def mount(self, tree: Path) -> Path:
        return tree

    def memory(self) -> int:
        return 0

    async def fetch(self, path: Path, to: Path) -> bool:
        import shutil

        to.mkdir()
        await asyncio.to_thread(shutil.copyfile, path, to / path.name)
        return True

    async def unmount(self) -> None:
        """Nothing is to be ended."""

    async def end(self) -> None:
        """Nothing is to be ended."""


def _process_with(*words: str) -> int:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if all(word.encode() in command for word in words):
            return int(entry.name)
    raise RuntimeError(f"no process {words}")
