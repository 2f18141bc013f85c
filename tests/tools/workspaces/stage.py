"""A mesh of real processes and the directory that its hosts are shown, by the tools alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from milkweed.runtime.client import Meshes
from tests.tools.conftest import Ask
from tests.tools.test_program_tools import asker

HOSTS = 2
WAIT_S = 40.0


@dataclass
class Shown:
    """`directory` is the client's; hosts have it in the way of the fixture `place`."""

    real: Meshes
    ask: Ask
    mesh: str
    directory: Path
    place: str

    async def run(self, *command: str, wait_s: float = WAIT_S, **more: Any) -> Any:
        """A run of all ranks, as it is at its end, or after `wait_s`."""
        return await self.ask("run_on_mesh", mesh=self.mesh, command=list(command), wait_s=wait_s, **more)

    async def succeed(self, *command: str, **more: Any) -> str:
        """What a run that succeeds on all ranks says: the same on all of them."""
        run = await self.run(*command, **more)
        assert run.state == "succeeded", told(run)
        ranks, _, output = run.output_tail.partition("\n")
        assert ranks in ("", f"ranks 0-{HOSTS - 1}:"), run.output_tail
        return str(output)

    async def python(self, script: str, *arguments: str, **more: Any) -> str:
        """`succeed` of a program that is not in the workspace."""
        return await self.succeed("python", "-c", script, *arguments, **more)

    async def all_say(self, run: str, words: str, within_s: float = 30.0) -> None:
        """Returns when all ranks have said the same, with these words in it."""
        with anyio.fail_after(within_s):
            while True:
                output = (await self.ask("wait_for_run", run=run, timeout_s=0)).output_tail
                if output.startswith(f"ranks 0-{HOSTS - 1}:") and words in output:
                    return
                await anyio.sleep(0.02)

    def host_directory(self, host: int) -> Path:
        return self.real._places.mesh(self.mesh).host(host)

    def tree(self, host: int) -> Path:
        """Where it is on a host, as a path of this machine; not of an isolated one."""
        assert not self.place.startswith("isolated")
        return self.host_directory(host) / "workspace"

    def mount_processes(self, host: int | None = None) -> list[int]:
        return processes_with(
            "milkweed.runtime.mounts.host", f"milkweed:{self.mesh}." + str("" if host is None else host)
        )

    def keeper(self) -> int:
        return int(self.real._places.mesh(self.mesh).lock.read_text())


READS_WHEN_TOLD = """
# READS_WHEN_TOLD: says that it is up, and reads a file when another one is there.
import os, sys, time
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
try:
    print(open(sys.argv[2]).read())
except OSError as error:
    print(error.strerror)
"""


def waits_for_a_mount(pid: int) -> bool:
    """In the kernel, for an answer of a mount process."""
    where = Path(f"/proc/{pid}/wchan").read_text()
    return "fuse" in where or "request_wait" in where


def told(run: Any) -> str:
    """Why a run is not as it should be."""
    return f"{run.state}: {run.first_failure} {run.output_tail}"


def processes_with(*words: str) -> list[int]:
    """Of this machine, by what is in their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if all(word.encode() in command for word in words):
                found.append(int(entry.name))
    return found


@asynccontextmanager
async def shown(
    real: Meshes, place: str, directory: Path, name: str = "t", hosts: int = HOSTS
) -> AsyncIterator[Shown]:
    ask = asker(real)
    mesh = await ask("allocate_mesh", **arguments(place, directory, name, hosts))
    assert mesh.warnings == [], mesh.warnings
    yield Shown(real, ask, mesh.mesh, directory, place)
    released = await ask("release_mesh", mesh=mesh.mesh)
    if released.state == "not_released":  # checkpoints, which no test misses
        await ask("release_mesh", mesh=mesh.mesh, confirm=released.confirm)


def arguments(place: str, directory: Path, name: str = "t", hosts: int = HOSTS) -> dict[str, Any]:
    """Of `allocate_mesh`."""
    found: dict[str, Any] = {"name": name, "hosts": hosts, "workspace": str(directory)}
    if place.startswith("isolated"):
        mode = "copy" if place.endswith("copy") else "mount"
        return {**found, "workspace_mode": mode, "options": {"isolation": "namespaces"}}
    return {**found, "workspace_mode": place}


async def until(true: Any, within_s: float = 20.0) -> None:
    """Polls a condition that is only to be seen from outside."""
    with anyio.fail_after(within_s):
        while not await anyio.to_thread.run_sync(true):
            await anyio.sleep(0.01)


@contextmanager
def working_directory(path: Path) -> Iterator[None]:
    """For names that are longer than a path may be, or sockets."""
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
