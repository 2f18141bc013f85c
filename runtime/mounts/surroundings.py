"""What every process that shows a file system has around it: its life line, what it says, and what it must
not look at.
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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from .mountpoints import clear

__all__ = ["begin", "imports_from", "look_nowhere_in", "make_room", "say", "serve_kernel", "told_to_end"]

_TASKS = 4096  # each a request that waits for bytes


def begin() -> None:
    """Says what is wrong on standard error, and may have as many files open as can be."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def make_room(mountpoint: Path) -> None:
    """Unmounts what a dead predecessor left, as late as can be: until then it refuses, while the directory
    below would be looked at, and empty.

    Raises:
        Unavailable: mount_unusable, something else is mounted there.
        OSError: the directory cannot be made.
    """
    clear(mountpoint)
    mountpoint.mkdir(parents=True, exist_ok=True)


def imports_from(mountpoint: str) -> bool:
    """Whether something that this process may import is to be shown there, out of its reach then."""
    places = (*sys.path, *sys.modules[__package__.partition(".")[0]].__path__)
    return any(_is_inside(path, mountpoint) for path in places)


def look_nowhere_in(mountpoint: str) -> None:
    """This process must not ask its own mount, which it alone can answer: not for modules, nor for the lines
    that a traceback shows. Both may lie there, where the environment that runs it is part of what is shown.
    """
    sys.path[:] = [path for path in sys.path if path and not _is_inside(path, mountpoint)]
    sys.path_importer_cache.clear()
    linecache.updatecache = _no_lines  # type: ignore[assignment]
    os.chdir("/")


def _is_inside(path: str, directory: str) -> bool:
    """By its name, or by where symlinks lead: nothing that hangs is mounted there yet."""
    inside = directory.rstrip("/") + "/"
    return f"{path}/".startswith(inside) or f"{os.path.realpath(path)}/".startswith(inside)


def _no_lines(_filename: str, _module_globals: object = None) -> list[str]:
    return []


async def serve_kernel(ended: anyio.Event) -> None:
    """Returns when it was unmounted, by whomever."""
    import pyfuse3

    await pyfuse3.main(1, _TASKS)
    ended.set()


@asynccontextmanager
async def told_to_end(on_line: Callable[[bytes], object] = lambda _: None) -> AsyncIterator[anyio.Event]:
    """Set when standard input ends, or by SIGTERM or SIGINT. `on_line` is given what comes there."""
    loop, ended = asyncio.get_running_loop(), anyio.Event()
    rest = b""

    def heard() -> None:
        nonlocal rest
        data = os.read(0, 4096)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            on_line(line)
        if not data:
            loop.remove_reader(0)
            ended.set()

    os.set_blocking(0, False)
    loop.add_reader(0, heard)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    yield ended
    loop.remove_reader(0)


def say(what: str, **more: Any) -> None:
    """An event, to whoever started this process."""
    with suppress(OSError):  # nobody listens any more: the end of standard input tells
        os.write(1, json.dumps({"event": what, **more}).encode() + b"\n")
