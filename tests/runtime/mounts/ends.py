"""Feeds and readers of them in processes of their own, to be stopped and killed.

    python -m tests.runtime.mounts.ends feed DIRECTORY ADDRESS [HOW]     (HOW: a function of `HOW` below)
    python -m tests.runtime.mounts.ends read ADDRESS NAME [TIMES]

A feed says where it is reached, and then what its `HOW` has to say; a reader what it read.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from milkweed.runtime import RDMABuffer
from milkweed.runtime.mounts import (
    FEED,
    Feed,
    FileRef,
    Followers,
    Landings,
    RemoteSource,
    contents,
    open_remote,
    open_workspace,
    serve_feed,
)
from milkweed.runtime.mounts.source import Bytes
from milkweed.runtime.tasks import background_tasks
from tests.runtime.memory import peers

ROOT = Path(__file__).resolve().parents[3]
CHUNK = 4 * 1024 * 1024


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.runtime.mounts.ends", *words]


class End:
    """Such a process; `first` is what it said first."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first = self.heard()

    def heard(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it has ended"
        return json.loads(line)


@contextmanager
def started(*words: str) -> Iterator[End]:
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield End(process)
        finally:
            process.kill()


def prepared() -> Landings:
    """So that the first range goes by them already."""
    landings = Landings()
    landings.prepare()
    return landings


async def read_all(source: RemoteSource, file: FileRef) -> bytes:
    found = bytearray()
    for offset in range(0, file.size, CHUNK):
        found += await source.read(file, offset, min(CHUNK, file.size - offset))
    return bytes(found)


async def file_in(source: RemoteSource, name: bytes) -> FileRef:
    entry = (await source.open()).entry(name)
    assert entry is not None
    return FileRef(name, entry.version, entry.size)


def forbid_process_vm(_: Path) -> None:
    peers.without_process_vm()


def tear(directory: Path) -> None:
    """The file is written over while it is read for the first time: what was read is a mix."""
    real = contents._read

    def torn(fd: int, offset: int, length: int, into: memoryview | None) -> Bytes:
        contents._read = real
        half = length // 2
        first = bytes(real(fd, offset, half, None))
        with open(directory / "big", "r+b") as file:
            file.write(b"n" * os.fstat(fd).st_size)
        say("torn")
        return first + bytes(real(fd, offset + half, length - half, None))

    contents._read = torn


def hang(_: Path) -> None:
    """Its first transfer begins, and does not end."""
    real = RDMABuffer.write_from

    def stuck(buffer: RDMABuffer, *_: Any, **__: Any) -> Awaitable[None]:
        RDMABuffer.write_from = real  # type: ignore[method-assign]
        peers.hold_in_transfer(buffer)
        say("in a transfer")
        return anyio.sleep_forever()

    RDMABuffer.write_from = stuck  # type: ignore[assignment,method-assign]


HOW: dict[str, Callable[[Path], None]] = {"forbid_process_vm": forbid_process_vm, "hang": hang, "tear": tear}


async def feed(directory: str, address: str, how: str = "") -> None:
    if how:
        HOW[how](Path(directory))
    async with open_workspace(Path(directory)) as workspace, background_tasks() as tasks:
        actors = {FEED: Feed(workspace, Followers())}
        say(
            await tasks.start(
                lambda task_status: serve_feed(address, actors, role="keeper", task_status=task_status)
            )
        )
        await anyio.sleep_forever()


async def read(address: str, name: str, times: str = "1") -> None:
    async with open_remote(address, "reader", landings=prepared()) as source:
        file = await file_in(source, name.encode())
        for _ in range(int(times)):
            digest = hashlib.sha256(await read_all(source, file)).hexdigest()
            say({"digest": digest, "moved": source.moved, "in_messages": source.in_messages})


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    anyio.run({"feed": feed, "read": read}[what], *words)
