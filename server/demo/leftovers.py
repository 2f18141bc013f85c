"""Processes that belong to one demonstration: those whose environment names its directory."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio

from ...runtime.agent.ptree import Process, read_environ, send_signal, snapshot

__all__ = ["end", "find", "wait_until_none"]

_LOOK_S = 0.05


def find(directory: Path) -> dict[int, Process]:
    """Living processes that were started with the directory somewhere in their environment, by pid."""
    text = str(directory)
    return {
        pid: process
        for pid, process in snapshot().items()
        if process.alive and any(text in value for value in read_environ(pid).values())
    }


async def wait_until_none(directory: Path, timeout_s: float) -> dict[int, Process]:
    """Those that are left when none is, or when the time is up."""
    with anyio.move_on_after(timeout_s):
        while find(directory):  # noqa: ASYNC110 - /proc tells nobody of a change
            await anyio.sleep(_LOOK_S)
    return find(directory)


async def end(directory: Path, timeout_s: float) -> dict[int, Process]:
    """Kills what is left; returns those that will not go."""
    with anyio.move_on_after(timeout_s):
        while left := find(directory):
            for process in left.values():
                send_signal(process, signal.SIGKILL)
            await anyio.sleep(_LOOK_S)
    return find(directory)
