"""Notices the end of the guard, the agent's parent."""

from __future__ import annotations

import os

import anyio

__all__ = ["GUARD_PID", "wait_for_exit", "watch_guard"]

GUARD_PID = "MILKWEED_GUARD_PID"


async def watch_guard() -> None:
    """Returns once the guard is gone; at once where there is none any more. Without a guard it never returns.

    Whoever awaits it ends everything of its own then, and itself.
    """
    name = os.environ.get(GUARD_PID, "")
    if not name.isdecimal():
        await anyio.sleep_forever()
    await wait_for_exit(int(name))


async def wait_for_exit(parent: int) -> None:
    """Returns when the parent process with this pid has ended, at once when another is our parent by now."""
    try:
        fd = os.pidfd_open(parent)
    except ProcessLookupError:
        return
    try:
        # Opened before the comparison: while it is our parent, the pid cannot have become another's.
        if os.getppid() == parent:
            await anyio.wait_readable(fd)
    finally:
        os.close(fd)
