"""Memory of this process that stays where it is."""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass

from .. import _native_memory as native
from ..errors import InvalidArgument

__all__ = ["Pinned", "allocate", "pinned"]


@dataclass(frozen=True, slots=True, eq=False)
class Pinned:
    """Bytes at an address. While `view` is held, the memory neither moves nor goes.

    `file` is the descriptor of memory that is a file of its own (`area`), else -1.
    """

    view: memoryview
    address: int
    file: int = -1
    area: mmap.mmap | None = None

    @property
    def size(self) -> int:
        return self.view.nbytes

    @property
    def is_readonly(self) -> bool:
        return self.view.readonly

    def part(self, offset: int, length: int) -> Pinned:
        """Some of it, held for itself; what others can map begins where the whole does."""
        file = -1 if offset else self.file
        return Pinned(self.view[offset : offset + length], self.address + offset, file)

    def release(self) -> None:
        """Lets go of it; memory that we allocated is freed unless the program still has a view of it."""
        self.view.release()
        if self.area is not None:
            with suppress(BufferError):
                self.area.close()
            os.close(self.file)


def pinned(view: memoryview) -> Pinned:
    """Contiguous bytes."""
    return Pinned(view, native.address_of(view) if view.nbytes else 0)


def allocate(size: int) -> Pinned:
    """New memory, zeros, in a file that other processes of this host can map.

    Raises:
        InvalidArgument: the size is negative.
        OSError: there is no room.
    """
    if size < 0:
        raise InvalidArgument("invalid_argument", f"a buffer of {size} bytes", "Give 0 or more.")
    if size == 0:
        return pinned(memoryview(bytearray()))
    file = os.memfd_create("milkweed-buffer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
        # It never becomes shorter below those who have it mapped.
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        area = mmap.mmap(file, size)
    except BaseException:
        os.close(file)
        raise
    view = memoryview(area)
    return Pinned(view, native.address_of(view), file, area)
