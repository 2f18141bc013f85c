"""A directory, its source, and the hosts that show it, for tests.

The source runs on the test's loop: whatever asks a mount must do so in a thread (`aside`) or in a process.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from milkweed.runtime.call import serve
from milkweed.runtime.mounts import (
    FEED,
    Feed,
    Followers,
    HostConfig,
    MountProcess,
    Workspace,
    open_mount,
    open_workspace,
)
from milkweed.runtime.tasks import background_tasks

T = TypeVar("T")
DEADLINE_S = 60.0


async def aside(function: Callable[[], T]) -> T:
    """Runs it in a thread, which is left behind if it hangs in a mount."""
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)


@contextmanager
def short_directory() -> Iterator[Path]:
    """Sockets have short paths."""
    path = Path(tempfile.mkdtemp(prefix="mw-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def serving(workspace: Workspace, socket: Path) -> AsyncIterator[Followers]:
    """The workspace's feed on a socket."""
    followers = Followers()
    async with background_tasks() as tasks:
        actors = {FEED: Feed(workspace, followers)}
        await tasks.start(lambda task_status: serve(socket, actors, role="keeper", task_status=task_status))
        yield followers


@dataclass
class Stage:
    """`source` is the client's directory; `mounts` what hosts see of it."""

    directory: Path
    source: Path
    workspace: Workspace
    followers: Followers
    hosts: list[MountProcess] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.directory / "s"

    def config(self, number: int = 0, **more: object) -> HostConfig:
        values = {
            "mountpoint": str(self.directory / f"m{number}"),
            "source": str(self.socket),
            "follower": f"host-{number}",
            "cache": str(self.directory / f"c{number}"),
            **more,
        }
        return HostConfig(**values)  # type: ignore[arg-type]

    def mount(self, number: int = 0) -> Path:
        return self.directory / f"m{number}"

    def overlay(self, number: int = 0) -> Path:
        return self.directory / f"o{number}"

    async def barrier(self) -> int:
        """All that was done to the source is seen on every host afterwards."""
        revision = await self.workspace.barrier()
        names = [host.config.follower for host in self.hosts]
        behind = await self.followers.acknowledged(revision, names, within_s=20.0)
        assert behind == []
        return revision


@asynccontextmanager
async def staged(
    directory: Path,
    hosts: int = 0,
    fill: Callable[[Path], None] | None = None,
    is_writable: bool = False,
    within_s: float = DEADLINE_S * 2,
) -> AsyncIterator[Stage]:
    """`fill` makes what is in the source when it is opened. What hosts write is in `overlay`."""
    source = directory / "src"
    source.mkdir()
    if fill is not None:
        fill(source)
    with anyio.fail_after(within_s):
        async with open_workspace(source) as workspace, serving(workspace, directory / "s") as followers:
            stage = Stage(directory, source, workspace, followers)
            async with AsyncExitStack() as stack:
                for number in range(hosts):
                    more = {"overlay": str(stage.overlay(number))} if is_writable else {}
                    mount = await stack.enter_async_context(open_mount(stage.config(number, **more)))
                    stage.hosts.append(mount)
                yield stage


def names_of_every_kind() -> list[bytes]:
    """Names that some program or file system stumbles over."""
    return [
        b"plain.txt",
        b"with blank",
        "z\u00fcrich-\u00e9t\u00e9".encode(),
        "\u6771\u4eac".encode(),
        "\U0001f98b.py".encode(),
        b"latin-\xfc\xe9",
        b"\xff\xfe\xfd",
        b"line\nbreak",
        b"tab\tquote'\"",
        b"\\backslash\\x41",
        b"-rf",
        b"*?[a-z]",
        b"a" * 255,
        b"\x01\x7f",
        b"CON.aux",
        b" leading",
        b"trailing ",
        b"dot.",
        "e\u0301-decomposed".encode(),
    ]


def write(path: Path | bytes, data: bytes | str) -> None:
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def read(path: Path | bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def replace_as_editors_do(path: Path, data: bytes | str) -> None:
    """Writes beside it and renames."""
    fresh = path.with_name(f".{path.name}.swp")
    write(fresh, data)
    os.rename(fresh, path)


def disturb(root: Path, chance: random.Random) -> None:
    """One change, of few names in few directories, so that they meet."""
    path = root.joinpath(*(chance.choice("abc") for _ in range(chance.randrange(1, 4))))
    other = root.joinpath(*(chance.choice("abc") for _ in range(chance.randrange(1, 3))))
    try:
        match chance.randrange(5):
            case 0:
                path.mkdir(parents=True)
            case 1:
                write(path, str(chance.random()))
            case 2:
                os.rename(path, other)
            case 3:
                subprocess.run(["rm", "-rf", path], check=False, capture_output=True)
            case 4:
                os.symlink(other, path)
    except OSError:
        pass
