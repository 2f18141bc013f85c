"""A directory on hosts of this machine, by the means of each side."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..runtime.api import SIDE
from .memory import peak_of

if TYPE_CHECKING:
    from .lab import Lab

__all__ = ["Hosts", "Ours", "open_hosts", "visible_s"]


class Hosts(Protocol):
    """`open` shows a tree on all of the hosts, whose processes are there already; `close` ends that."""

    async def open(self, tree: Path) -> None: ...

    def path(self, host: int) -> Path:
        """Where a host shows it."""
        ...

    async def edited(self) -> None:
        """What the user of this side does after an edit, so that hosts see it."""
        ...

    async def close(self) -> None: ...

    def feeder_peak(self) -> int:
        """The most memory that the process had which feeds the hosts, in bytes; 0: not known."""
        ...

    async def end(self) -> None: ...


async def open_hosts(count: int) -> Hosts:
    """Those of the side that this process is, ready to be shown something; the bare side has the tree."""
    if SIDE == "monarch":
        return await _Monarch.start(count)
    return Ours(count) if SIDE == "ours" else _Plain()


class Ours:
    """Hosts 0 and 1 are fed by the client, each feeds two others, as in a mesh."""

    def __init__(self, count: int) -> None:
        from .lab import Lab

        self.count = count
        self.lab: Lab = Lab(Path.cwd())

    async def open(self, tree: Path) -> None:
        self.lab.open(tree)
        self.mount()

    def mount(self) -> None:
        """Of what the source has open."""
        root = self.lab.root
        made = []
        for host in range(self.count):
            parents = (str(root / f"p{(host - 2) // 2}"),) if host > 1 else ()
            made.append(self.lab.mount(host, serve=str(root / f"p{host}"), parents=parents))
        for one in made:
            one.ready()

    def path(self, host: int) -> Path:
        return self.lab.path(host)

    async def edited(self) -> None:
        """Nothing is to be done."""

    async def close(self) -> None:
        for host in range(self.count):
            self.lab.unmount(host)

    def feeder_peak(self) -> int:
        return peak_of(self.lab.source.child.pid)

    async def end(self) -> None:
        self.lab.close()


class _Monarch:
    """`remotemount` on the hosts of a `ProcessJob`."""

    def __init__(self, job: Any, hosts: Any) -> None:
        self._job, self._hosts = job, hosts
        self._mount: Any = None
        self._feeders: set[int] = set()

    @classmethod
    async def start(cls, count: int) -> _Monarch:
        from monarch.job import ProcessJob

        job = ProcessJob({"hosts": count})
        hosts = (await asyncio.to_thread(job.state, cached_path=None)).hosts
        await hosts.spawn_procs(name="first").initialized  # or the first mount would wait for the hosts
        return cls(job, hosts)

    async def open(self, tree: Path) -> None:
        from monarch.remotemount import remotemount

        before = _children()  # hosts, and the procs of mounts before
        self._mount = await asyncio.to_thread(remotemount, self._hosts, str(tree), f"{Path.cwd()}/m_$SUBDIR")
        await asyncio.to_thread(self._mount.open)
        self._feeders = _children() - before

    def path(self, host: int) -> Path:
        return Path.cwd() / f"m_hosts_{host}"

    async def edited(self) -> None:
        await asyncio.to_thread(self._mount.refresh)

    async def close(self) -> None:
        await asyncio.to_thread(self._mount.close)

    def feeder_peak(self) -> int:
        return sum(peak_of(pid) for pid in self._feeders)

    async def end(self) -> None:
        self._job.kill()


class _Plain:
    """The directory itself."""

    def __init__(self) -> None:
        self._tree = Path()

    async def open(self, tree: Path) -> None:
        self._tree = tree

    def path(self, _: int) -> Path:
        return self._tree

    async def edited(self) -> None:
        """Nothing is to be done."""

    async def close(self) -> None:
        """Nothing is to be ended."""

    def feeder_peak(self) -> int:
        return 0

    async def end(self) -> None:
        """Nothing is to be ended."""


def visible_s(hosts: Hosts, count: int, name: str, text: bytes, started: float) -> float:
    """Seconds from `started` (perf_counter) until all hosts show the text."""
    waiting = [os.fspath(hosts.path(host) / name) for host in range(count)]
    while waiting:
        if _has(waiting[-1], text):
            waiting.pop()
        else:
            time.sleep(0.0002)
    return time.perf_counter() - started


def _children() -> set[int]:
    """Of this process."""
    found = Path("/proc/self/task").glob("*/children")
    return {int(pid) for children in found for pid in children.read_text().split()}


def _has(path: str, text: bytes) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(len(text) + 1) == text
    except OSError:
        return False
