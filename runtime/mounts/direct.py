"""Writes past the kernel's page cache: what is cached on disk the kernel has in memory already, as pages
of the mounted file. Blocks.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from .source import Bytes

__all__ = ["NOWHERE", "open_direct", "write"]

NOWHERE = -1
_BLOCK = 4096


def open_direct(path: str) -> int:
    """A descriptor for a file that is there; NOWHERE where the file system has no such writes."""
    with suppress(OSError):
        return os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    return NOWHERE


def write(fd: int, direct: int, start: int, data: Bytes) -> None:
    """All of it, to one file that is open twice; past the page cache where both ends are at whole blocks.

    Raises:
        OSError: the disk is full.
    """
    view, done = memoryview(data), 0
    blocks = 0 if direct == NOWHERE else _whole_blocks(start, view)
    with suppress(OSError):  # what is wrong the plain write tells, if it is that wrong
        while done < blocks:
            done += os.pwrite(direct, view[done:blocks], start + done)
    while done < len(view):
        done += os.pwrite(fd, view[done:], start + done)


def _whole_blocks(start: int, view: memoryview) -> int:
    if start % _BLOCK or view.readonly or not view.contiguous:
        return 0
    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0
    return 0 if address % _BLOCK else len(view) // _BLOCK * _BLOCK
