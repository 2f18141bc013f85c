"""What tests of the host side share: plans, processes, and hosts in this process or under a guard."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from milkweed.runtime.agent import ptree
from milkweed.runtime.agent.capping import OutputCap
from milkweed.runtime.agent.children import open_children
from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.agent.spool import Spool
from milkweed.runtime.call import ActorRef, open_connection
from milkweed.runtime.records import HostEvent, HostPlan, ProcessPlan
from milkweed.runtime.services.runs import Runs

ROOT = Path(__file__).resolve().parents[2]
GUARD = ROOT / "runtime" / "agent" / "guard.py"
DEADLINE_S = 20.0


def popen(argv: Sequence[str], *, output: Path | None = None, **options: Any) -> subprocess.Popen[Any]:
    """Starts a process of the test's own; `output` is appended to."""
    if output is None:
        return subprocess.Popen(argv, **options)
    with open(output, "ab") as file:
        return subprocess.Popen(argv, stdout=file, stderr=file, **options)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def plan_of(
    directory: Path,
    *commands: Sequence[str],
    run: str = "run-1",
    script: str | None = None,
    timeout_s: float | None = None,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
) -> HostPlan:
    """One rank a command."""
    procs = tuple(
        ProcessPlan(
            rank, f"rank-{rank}", tuple(argv), {"RANK": str(rank), **(env or {})}, cwd or str(directory)
        )
        for rank, argv in enumerate(commands)
    )
    return HostPlan(run, 0, procs, (), script, timeout_s)


async def until(condition: Callable[[], object], seconds: float = DEADLINE_S) -> None:
    """Waits for a condition of the outside world that announces itself to nobody."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.01)


async def event_of(spool: Spool, kind: str, rank: int | None = None) -> HostEvent:
    """The first event of a kind (and rank)."""
    seq = 0
    with anyio.fail_after(DEADLINE_S):
        while True:
            for event in await spool.after(seq, 1.0):
                seq = event.seq
                if event.kind == kind and (rank is None or event.rank == rank):
                    return event


def marked(mesh: str) -> dict[int, ptree.Process]:
    """Living processes of this machine that carry the marks of a mesh."""
    table = ptree.snapshot()
    marks = {"MILKWEED_HOST_ID": f"{mesh}.0"}
    return {pid: p for pid, p in table.items() if p.alive and ptree.carries(ptree.read_environ(pid), marks)}


@asynccontextmanager
async def open_host(directory: Path, cap: OutputCap | None = None) -> AsyncIterator[tuple[HostContext, Runs]]:
    """A host in this process. It is no subreaper: other tests may have children here."""
    spool = Spool(directory / "spool.jsonl")
    async with open_children(subreaper=False) as children:
        context = HostContext(
            unique("mesh"), 0, "host-0", "127.0.0.1", directory, str(directory), children, spool
        )
        async with Runs.open(context, cap) as runs:
            yield context, runs
    spool.close()


@dataclass(frozen=True)
class GuardedHost:
    """A harness agent under a real guard, with its starter of procs."""

    directory: Path
    mesh: str
    guard: subprocess.Popen[bytes]
    agent: int
    runs: ActorRef[Runs]
    address: Path
    starter: int

    def events(self) -> tuple[HostEvent, ...]:
        return Spool.read(self.directory / "spool.jsonl")

    async def event(self, kind: str, rank: int | None = None) -> HostEvent:
        found: list[HostEvent] = []

        def look() -> bool:
            found[:] = [e for e in self.events() if e.kind == kind and (rank is None or e.rank == rank)]
            return bool(found)

        await until(look)
        return found[0]


@asynccontextmanager
async def open_guarded(directory: Path, *options: str, cap: int = 64 << 20) -> AsyncIterator[GuardedHost]:
    """A host under a guard; whatever the test leaves of it is killed at the end."""
    mesh = unique("mesh")
    sockets = Path(tempfile.mkdtemp(prefix="mw-"))
    address = sockets / "s"
    harness = [sys.executable, "-m", "tests.runtime.agent.harness"]
    command = [sys.executable, "-I", "-S", str(GUARD), "--log", str(directory / "guard.log"), *options]
    guard = popen(
        [*command, "--", *harness, str(directory), str(address), mesh, str(cap)],
        output=directory / "agent.log",
        cwd=ROOT,
    )
    try:
        await until(lambda: listens(address) or guard.poll() is not None)
        assert guard.poll() is None, (directory / "agent.log").read_text()
        table = ptree.snapshot()
        agent = next(pid for pid, process in table.items() if process.parent == guard.pid)
        async with open_connection(address, role="keeper") as connection:
            runs = connection.actor("Runs", Runs).within(DEADLINE_S)
            (starter,) = (one.pid for one in ptree.snapshot().values() if one.parent == agent)
            yield GuardedHost(directory, mesh, guard, agent, runs, address, starter)
    finally:
        guard.kill()
        guard.wait()
        guard_left = marked(mesh)
        for process in guard_left.values():
            ptree.send_signal(process, 9)
        shutil.rmtree(sockets, ignore_errors=True)


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def open_descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found
