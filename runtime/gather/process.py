"""The process of a gather mount: shows hosts' files at a mount point until its life line ends.

    python -m milkweed.runtime.gather.process CONFIG    (JSON: the fields of `GatherConfig`)

It talks as the mount processes on hosts do (`mounts.host`), and never waits for its own mount.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path

import anyio

from ..mounts.landing import Landings
from ..mounts.mountpoints import set_read_ahead
from ..mounts.surroundings import (
    begin,
    imports_from,
    look_nowhere_in,
    make_room,
    say,
    serve_kernel,
    told_to_end,
)
from ..tasks import background_tasks
from .config import MOUNT_NAME, GatherConfig
from .remote_host import RemoteHost

__all__ = ["main"]

_LOOK_S = 1.0
_IDLE_S = 1.0
_READ_AHEAD_KIB = 512


async def run(config: GatherConfig) -> None:
    from ..mounts.fuse_loop import use_asyncio

    use_asyncio()
    import pyfuse3

    from .filesystem import GatherFileSystem

    async with background_tasks() as tasks:
        landings = Landings() if config.one_sided else Landings(0)
        if config.one_sided and imports_from(config.mountpoint):
            landings.prepare()
        hosts = {
            number: RemoteHost(number, address, config.remote, landings) for number, address in config.hosts
        }
        for one in hosts.values():
            await tasks.start(one.run)
        file_system = GatherFileSystem(hosts, config.life_s)
        file_system.on_greeted = partial(set_read_ahead, Path(config.mountpoint), _READ_AHEAD_KIB)
        options = {"ro", f"fsname={MOUNT_NAME}:{config.name}", "subtype=milkweed"}
        look_nowhere_in(config.mountpoint)
        make_room(Path(config.mountpoint))
        pyfuse3.init(file_system, config.mountpoint, options)
        try:
            async with told_to_end() as ended:
                tasks.start_soon(serve_kernel, ended)
                say("ready")
                tasks.start_soon(_prepare, landings)
                while not ended.is_set():
                    with anyio.move_on_after(_LOOK_S):
                        await ended.wait()
                    say(
                        "state",
                        gone={number: one.problem for number, one in hosts.items() if one.problem},
                        moved=dict(sum((one.moved for one in hosts.values()), Counter[str]())),
                        **asdict(file_system.counters),
                    )
        finally:
            landings.close()
            pyfuse3.close(unmount=True)
            tasks.cancel_scope.cancel()


async def _prepare(landings: Landings) -> None:
    """Whoever waited for the mount is to have all of this process; a large read does it too."""
    await anyio.sleep(_IDLE_S)
    landings.begin()


def main(arguments: list[str]) -> None:
    begin()
    anyio.run(run, GatherConfig.from_json(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
