"""One import at a time among the simulated hosts of a machine: they would only slow each other down."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

__all__ = ["my_turn"]

_LOOK_S = 0.2


@asynccontextmanager
async def my_turn(path: Path) -> AsyncIterator[None]:
    """Holds the lock file for the length of the block; without one where it cannot be made."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        while not _lock(fd):  # noqa: ASYNC110 - a lock tells nobody that it is free
            await anyio.sleep(_LOOK_S)
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
