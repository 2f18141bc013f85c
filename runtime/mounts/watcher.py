"""Which names of a tree may have changed: one inotify queue over all of its directories, and the cookie.

What the watcher tells are hints: whoever gets them looks at what is there now. Events are in the order in
which things were done, whatever directory they are of: a cookie that was written into a directory of our own
comes after all that happened before it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Final

from .inotify import CREATED, IS_DIRECTORY, MOVED_TO, OVERFLOW, Event, Inotify
from .manifest import join

__all__ = ["EVERYTHING", "Watcher"]

EVERYTHING: Final = b"\0"
"""Told in place of a path (no path contains it): events were lost."""
_COOKIE_S = 5.0
_PREFIX = "milkweed-watch-"
_YOUNG_S = 60.0


class Watcher:
    """Calls `on_hint(path, deep)` on the loop: a name that may have changed; `deep`: it may be a directory
    that was not watched, or under another name.
    """

    def __init__(self, root: bytes, on_hint: Callable[[bytes, bool], None]) -> None:
        """
        Raises:
            Unavailable: watch_unusable.
        """
        self.root = root
        self.events = 0
        self.overflows = 0
        self._on_hint = on_hint
        self._lock = Lock()  # watches are added by the thread that scans
        self._inotify = Inotify()
        self._path_of: dict[int, bytes] = {}
        self._watch_of: dict[bytes, int] = {}
        self._cookies: dict[bytes, asyncio.Future[None]] = {}
        self._next_cookie = 0
        self._directory, self._held = _own_directory()
        self._cookie_watch = self._inotify.add(os.fsencode(self._directory))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._inotify.fd, self.drain)

    def add(self, path: bytes) -> None:
        """Watches a directory of the tree, from any thread. One that has gone is no error.

        Raises:
            Unavailable: watch_unusable.
        """
        with self._lock:
            try:
                watch = self._inotify.add(join(self.root, path) if path else self.root)
            except OSError:
                return
            before = self._path_of.get(watch)
            if before is not None and self._watch_of.get(before) == watch:
                del self._watch_of[before]  # it was moved
            old = self._watch_of.get(path)
            if old is not None and old != watch and self._path_of.get(old) == path:
                del self._path_of[old]
                self._inotify.remove(old)  # another directory stands under that name
            self._path_of[watch] = path
            self._watch_of[path] = watch

    def remove(self, path: bytes) -> None:
        """Watches it no longer, if it is what was watched under that name."""
        with self._lock:
            watch = self._watch_of.pop(path, None)
            if watch is not None and self._path_of.get(watch) == path:
                del self._path_of[watch]
                self._inotify.remove(watch)

    def drain(self) -> None:
        """Tells all hints that wait in the kernel's queue."""
        for event in self._inotify.read():
            self.events += 1
            if event.mask & OVERFLOW:
                self.overflows += 1
                self._on_hint(EVERYTHING, True)
            elif event.watch == self._cookie_watch:
                self._arrived(event.name)
            else:
                self._hint(event)

    async def caught_up(self) -> bool:
        """Returns when all has been told that happened in the tree before the call; False: the cookie was
        lost, and with it perhaps more.
        """
        self._next_cookie += 1
        name = b"%d" % self._next_cookie
        arrived = self._cookies[name] = self._loop.create_future()
        path = self._directory / os.fsdecode(name)
        try:
            path.touch()
            self.drain()  # most often it is there at once
            async with asyncio.timeout(_COOKIE_S):
                await arrived
        except (TimeoutError, OSError):
            return False
        finally:
            self._cookies.pop(name, None)
            path.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        self._loop.remove_reader(self._inotify.fd)
        self._inotify.close()
        for name in os.listdir(self._directory):
            (self._directory / name).unlink(missing_ok=True)
        with suppress(OSError):
            self._directory.rmdir()
        os.close(self._held)

    def _hint(self, event: Event) -> None:
        path = self._path_of.get(event.watch)
        if path is None:  # of a directory that has gone
            return
        if not event.name:
            self._on_hint(path, False)
            return
        deep = bool(event.mask & IS_DIRECTORY and event.mask & (CREATED | MOVED_TO))
        self._on_hint(join(path, event.name), deep)

    def _arrived(self, name: bytes) -> None:
        waiter = self._cookies.get(name)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _own_directory() -> tuple[Path, int]:
    """A new one, and a descriptor that holds it for as long as this process lives. Those that killed
    processes left are removed.
    """
    made = Path(mkdtemp(prefix=_PREFIX))
    held = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX)
    with suppress(OSError):
        for other in made.parent.glob(f"{_PREFIX}*"):
            if other != made:
                _remove_if_left(other)
    return made, held


def _remove_if_left(directory: Path) -> None:
    with suppress(OSError):
        if time.time() - directory.stat().st_mtime < _YOUNG_S:
            return  # it may be about to be held
        found = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(found)
