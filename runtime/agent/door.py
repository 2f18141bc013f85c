"""Asking the thread inside a rank that has a process group (`hook/milkweed_flight.py`)."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

__all__ = ["ask", "find_door"]

_POLL_S = 0.005


def find_door(run_directory: Path, pid: int) -> Path | None:
    """Where a process is asked; None of one that has made no process group."""
    return next(iter(run_directory.glob(f"*.ask.{pid}")), None)


async def ask(door: Path, question: str, answer: Path, timeout_s: float) -> bool:
    """Whether the file that the question names as its answer is there in time; the caller removes it.

    Raises:
        OSError: nobody is behind the door.
    """
    fd = os.open(door, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(fd, f"{question}\n".encode())
    finally:
        os.close(fd)
    with anyio.move_on_after(timeout_s):
        while not answer.exists():  # noqa: ASYNC110 - the rank tells by this file
            await anyio.sleep(_POLL_S)
        return True
    return False
