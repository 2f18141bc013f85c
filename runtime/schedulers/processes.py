"""Processes as the local scheduler sees them: by pid and start time, and by the mark in their environment."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import anyio

__all__ = ["HOST_MARK", "end_all", "marked", "start_time", "wait_gone"]

HOST_MARK = "MILKWEED_HOST_ID"


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start, None when there is no such process or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command, in parentheses, may hold anything; fields 3 and 22 follow its last parenthesis.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def marked(host_ids: Callable[[str], bool]) -> Iterator[int]:
    """Pids of this user's processes whose environment carries a host id that is asked for."""
    prefix = HOST_MARK.encode() + b"="
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                entries = file.read().split(b"\0")
        except OSError:
            continue
        values = [
            entry[len(prefix) :].decode(errors="replace") for entry in entries if entry.startswith(prefix)
        ]
        if values and host_ids(values[-1]) and start_time(int(name)) is not None:
            yield int(name)


async def wait_gone(pid: int, started: int) -> None:
    """Returns when that very process has ended; reaps it when it is our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_time(pid) == started:
            await anyio.wait_readable(fd)
    finally:
        with suppress(ChildProcessError):  # it is somebody else's child
            os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - it does not wait
        os.close(fd)


async def end_all(pids: Callable[[], list[int]], deadline_s: float = 5.0) -> int:
    """Kills what `pids` names until it names nothing; returns how many there were.

    Asking again after each round catches what a dying process started meanwhile.
    """
    ended: set[int] = set()
    with anyio.move_on_after(deadline_s):
        while found := pids():
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError as error:
                    if error.errno != errno.ESRCH:
                        raise
                ended.add(pid)
            await anyio.sleep(0.01)
    return len(ended)
