"""The mount process: shows a source at a mount point until its life line ends.

    python -m milkweed.runtime.mounts.host CONFIG    (JSON: the fields of `HostConfig`)

It says on standard output, a line of JSON each, that it is `ready`, and later how it does. It does what
comes on its standard input, a line of JSON each, and answers. It ends, and unmounts, when its standard input
ends, and when it is told to by SIGTERM.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream

from ..tasks import background_tasks
from .cache import ByteCache
from .cache_files import CacheFiles
from .doors import serve_feed
from .feed import FEED, ReadFeed
from .host_config import HostConfig
from .host_mount import HostMount
from .invalidator import Invalidator
from .landing import Landings
from .mountpoints import set_read_ahead
from .pacing import Lent
from .remote import RemoteReads, RemoteSource
from .source import Reads
from .surroundings import begin, imports_from, look_nowhere_in, make_room, say, serve_kernel, told_to_end

if TYPE_CHECKING:
    from .filesystem import FileSystem

__all__ = ["main"]

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
_IDLE_S = 0.25
_READ_AHEAD_KIB = 512  # more makes a read in order little faster, and each fault of a mapped file dearer


async def run(config: HostConfig) -> None:
    from .fuse_loop import use_asyncio

    use_asyncio()
    import pyfuse3

    async with background_tasks() as tasks:
        landings = Landings() if config.one_sided else Landings(0)
        if config.one_sided and imports_from(config.mountpoint):
            landings.prepare()
        source = RemoteSource(config.source, config.follower, patience_s=config.patience_s, landings=landings)
        parents = [RemoteReads(parent, "another host", landings=landings) for parent in config.parents]
        remotes = [*parents, source]
        upstream: list[Reads] = list(remotes)
        for one in remotes:
            await tasks.start(one.run)
        cache = ByteCache(CacheFiles(Path(config.cache)), upstream, tasks, config.cache_bytes)
        tasks.start_soon(cache.recall)
        mount = HostMount(source, await source.open(), cache, config.overlay)
        file_system = _file_system(mount, cache)
        file_system.on_greeted = partial(set_read_ahead, Path(config.mountpoint), _READ_AHEAD_KIB)
        look_nowhere_in(config.mountpoint)
        make_room(Path(config.mountpoint))
        pyfuse3.init(file_system, config.mountpoint, _options(config))
        try:
            invalidator = Invalidator(pyfuse3)
            if config.serve:
                lent = {FEED: ReadFeed(Lent(cache, cache.pace))}
                await tasks.start(lambda task_status: serve_feed(
                    config.serve, lent, role="host", task_status=task_status
                ))  # fmt: skip
            tasks.start_soon(mount.follow, invalidator)
            send, orders = anyio.create_memory_object_stream[bytes](math.inf)
            tasks.start_soon(_obey, orders, mount, invalidator)
            async with told_to_end(send.send_nowait) as ended:
                tasks.start_soon(serve_kernel, ended)
                tasks.start_soon(_prepare, landings)
                say("ready", revision=mount.manifest.revision, entries=len(mount.manifest))
                while not ended.is_set():
                    with anyio.move_on_after(_LOOK_S):
                        await ended.wait()
                    say(
                        "state",
                        revision=mount.manifest.revision,
                        cached=cache.on_disk,
                        fetched=cache.fetched,
                        refused_by_disk=cache.refused_by_disk,
                        moved=dict(sum((one.moved for one in remotes), Counter())),
                        in_messages="; ".join(sorted({one.in_messages for one in remotes} - {""})),
                        **asdict(file_system.counters),
                    )
            invalidator.close()
        finally:
            cache.close()
            mount.close()
            pyfuse3.close(unmount=True)
            tasks.cancel_scope.cancel()


def _file_system(mount: HostMount, cache: ByteCache) -> FileSystem:
    failures = _Failures()
    if mount.changes is not None:
        from .writing import WritableFileSystem

        return WritableFileSystem(mount.table, mount.changes, cache, mount.next_change, failures.tell)
    from .filesystem import FileSystem

    return FileSystem(mount.table, mount.overlay, cache, mount.next_change, failures.tell)


def _options(config: HostConfig) -> set[str]:
    options = {"default_permissions", f"fsname={config.name}", "subtype=milkweed"}
    if not config.overlay:
        options.add("ro")
    if config.allow_other:
        options.add("allow_other")
    return options


async def _obey(orders: MemoryObjectReceiveStream[bytes], mount: HostMount, invalidator: Invalidator) -> None:
    """Does what comes on standard input, a line of JSON each, one by one, and answers."""
    async for line in orders:
        order = json.loads(line)
        try:
            discarded = await mount.discard([os.fsencode(path) for path in order["keep"]], invalidator)
            say("answer", id=order["id"], **discarded._asdict())
        except OSError as error:
            say("answer", id=order["id"], error=str(error))


class _Failures:
    """Reads that failed, said before whoever read is told; not more than one a second."""

    def __init__(self) -> None:
        self._said = -_LOOK_S

    def tell(self, why: str) -> None:
        logger.warning("a read failed: %s", why)
        now = time.monotonic()
        if now - self._said >= _LOOK_S:
            self._said = now
            say("read_failed", why=why)


async def _prepare(landings: Landings) -> None:
    await anyio.sleep(_IDLE_S)  # who waited for the mount is to have all of this process
    landings.begin()


def main(arguments: list[str]) -> None:
    begin()
    anyio.run(run, HostConfig.from_json(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
