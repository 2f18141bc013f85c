"""The kernel's inotify, which the standard library lacks: watches on directories, names in bytes."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import Unavailable

__all__ = ["CREATED", "IGNORED", "IS_DIRECTORY", "MOVED_TO", "OVERFLOW", "WATCHED", "Event", "Inotify"]

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _DELETE = 0x40, 0x200
MOVED_TO: Final = 0x80
CREATED: Final = 0x100
OVERFLOW: Final = 0x4000
IGNORED: Final = 0x8000
IS_DIRECTORY: Final = 0x4000_0000
_ONLY_DIRECTORY, _DONT_FOLLOW, _EXCL_UNLINK = 0x0100_0000, 0x0200_0000, 0x0400_0000
WATCHED: Final = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | MOVED_TO | CREATED | _DELETE
    | _ONLY_DIRECTORY | _DONT_FOLLOW | _EXCL_UNLINK
)  # fmt: skip
_HEAD = struct.Struct("iIII")
_BUFFER = 256 * 1024


class Event(NamedTuple):
    """`name` is empty where the directory itself is meant; `watch` is -1 of an overflow."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """One queue of events, in the order in which the kernel saw them; `fd` is readable when there are any."""

    def __init__(self) -> None:
        """
        Raises:
            Unavailable: watch_unusable, the user's instances are used up, or the kernel has none.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise _unusable(ctypes.get_errno())
        self._is_open = True

    def add(self, path: bytes) -> int:
        """Watches a directory; the same directory again gives the same number, whatever its name now is.

        Raises:
            OSError: it is no directory any more.
            Unavailable: watch_unusable, the user's watches are used up.
        """
        watch: int = self._libc.inotify_add_watch(self.fd, path, WATCHED)
        if watch < 0:
            number = ctypes.get_errno()
            if number in {errno.ENOSPC, errno.ENOMEM}:
                raise _unusable(number)
            raise OSError(number, os.strerror(number), path)
        return watch

    def remove(self, watch: int) -> None:
        """Ends a watch, if there is one."""
        self._libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[Event]:
        """All events that wait now."""
        while True:
            try:
                data = os.read(self.fd, _BUFFER)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                yield Event(watch, mask, data[at : at + length].rstrip(b"\0"))
                at += length

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.fd)


def _unusable(number: int) -> Unavailable:
    what = {
        errno.ENOSPC: "this user's directory watches are used up (fs.inotify.max_user_watches)",
        errno.EMFILE: "this user's inotify instances are used up (fs.inotify.max_user_instances)",
    }.get(number, f"the kernel's inotify cannot be used: {os.strerror(number)}")
    return Unavailable("watch_unusable", what, "Raise that limit with sysctl, or exclude directories.")
