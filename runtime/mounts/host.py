"""The mount process: shows a source at a mount point until its life line ends.

    python -m milkweed.runtime.mounts.host CONFIG    (JSON: the fields of `HostConfig`)

It says on standard output, a line of JSON each, that it is `ready`, and later how it does. It ends, and
unmounts, when its standard input ends, and when it is told to by SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import linecache
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from ..call import serve
from ..tasks import background_tasks
from .cache import ByteCache
from .cache_files import CacheFiles
from .deltas import Delta, apply, difference
from .feed import FEED, ReadFeed, RemoteReads, RemoteSource
from .host_config import HostConfig
from .invalidator import Invalidator
from .manifest import Manifest
from .mountpoints import clear, set_read_ahead
from .nodes import NodeTable
from .source import Reads

__all__ = ["main"]

logger = logging.getLogger(__name__)

_TASKS = 4096  # each a request that waits for bytes
_LOOK_S = 1.0
_READ_AHEAD_KIB = 1024


class HostMount:
    """A source as the kernel of this host shows it."""

    def __init__(self, config: HostConfig, source: RemoteSource, manifest: Manifest) -> None:
        self.manifest = manifest
        self.table = NodeTable(manifest)
        self._config = config
        self._source = source
        self._changed = anyio.Event()

    async def next_change(self) -> None:
        await self._changed.wait()

    async def follow(self, invalidator: Invalidator) -> None:
        """Shows each revision; to ask for the next one says that the kernel knows this one."""
        manifest = self.manifest
        while True:
            news = await self._source.since(manifest.epoch, manifest.revision)
            delta = news if isinstance(news, Delta) else difference(manifest, news)
            invalid = self.table.changed(apply(manifest, delta))
            manifest.epoch = delta.epoch
            changed, self._changed = self._changed, anyio.Event()
            changed.set()
            await invalidator.tell(invalid)


async def run(config: HostConfig) -> None:
    from .fuse_loop import use_asyncio

    use_asyncio()
    import pyfuse3

    from .filesystem import FileSystem

    async with background_tasks() as tasks:
        source = RemoteSource(Path(config.source), config.follower, patience_s=config.patience_s)
        parents = [RemoteReads(Path(parent), "another host") for parent in config.parents]
        for one in (source, *parents):
            await tasks.start(one.run)
        upstream: list[Reads] = [*parents, source]
        cache = ByteCache(CacheFiles(Path(config.cache)), upstream, tasks, config.cache_bytes)
        tasks.start_soon(cache.recall)
        mount = HostMount(config, source, await source.open())
        file_system = FileSystem(mount.table, cache, mount.next_change)
        options = {"ro", "default_permissions", f"fsname={config.name}", "subtype=milkweed"}
        if config.allow_other:
            options.add("allow_other")
        look_nowhere_in(config.mountpoint)
        make_room(Path(config.mountpoint))
        pyfuse3.init(file_system, config.mountpoint, options)
        set_read_ahead(Path(config.mountpoint), _READ_AHEAD_KIB)
        try:
            invalidator = Invalidator(pyfuse3)
            if config.serve:
                await tasks.start(lambda task_status: serve(
                    Path(config.serve), {FEED: ReadFeed(cache)}, role="host", task_status=task_status
                ))  # fmt: skip
            tasks.start_soon(mount.follow, invalidator)
            async with _told_to_end() as ended:
                tasks.start_soon(_serve_kernel, ended)
                _say("ready", revision=mount.manifest.revision, entries=len(mount.manifest))
                while not ended.is_set():
                    with anyio.move_on_after(_LOOK_S):
                        await ended.wait()
                    _say(
                        "state",
                        revision=mount.manifest.revision,
                        cached=cache.on_disk,
                        fetched=cache.fetched,
                        refused_by_disk=cache.refused_by_disk,
                        last_failure=file_system.last_failure,
                        **asdict(file_system.counters),
                    )
            invalidator.close()
        finally:
            cache.close()
            pyfuse3.close(unmount=True)
            tasks.cancel_scope.cancel()


def make_room(mountpoint: Path) -> None:
    """Unmounts what a dead predecessor left, as late as can be: until then it refuses, while the directory
    below would be looked at, and empty.

    Raises:
        Unavailable: mount_unusable, something else is mounted there.
        OSError: the directory cannot be made.
    """
    clear(mountpoint)
    mountpoint.mkdir(parents=True, exist_ok=True)


def look_nowhere_in(mountpoint: str) -> None:
    """This process must not ask its own mount, which it alone can answer: not for modules, nor for the lines
    that a traceback shows. Both may lie there, where the environment that runs it is part of what is shown.
    """
    inside = mountpoint.rstrip("/")
    sys.path[:] = [path for path in sys.path if path and path != inside and not path.startswith(inside + "/")]
    sys.path_importer_cache.clear()
    linecache.updatecache = _no_lines  # type: ignore[assignment]
    os.chdir("/")


def _no_lines(_filename: str, _module_globals: object = None) -> list[str]:
    return []


async def _serve_kernel(ended: anyio.Event) -> None:
    """Returns when it was unmounted, by whomever."""
    import pyfuse3

    await pyfuse3.main(1, _TASKS)
    ended.set()


@asynccontextmanager
async def _told_to_end() -> AsyncIterator[anyio.Event]:
    """Set when standard input ends, or by SIGTERM or SIGINT."""
    loop, ended = asyncio.get_running_loop(), anyio.Event()

    def heard() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            ended.set()

    os.set_blocking(0, False)
    loop.add_reader(0, heard)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    yield ended
    loop.remove_reader(0)


def _say(what: str, **more: Any) -> None:
    with suppress(OSError):  # nobody listens any more: the end of standard input tells
        os.write(1, json.dumps({"event": what, **more}).encode() + b"\n")


def main(arguments: list[str]) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    anyio.run(run, HostConfig.from_json(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
