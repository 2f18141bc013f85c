"""Processes as the local scheduler sees them: by pid and start time, and by the mark in their environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import anyio

__all__ = ["HOST_MARK", "end_marked", "host_id", "marked", "start_time", "wait_gone"]

HOST_MARK = "MILKWEED_HOST_ID"
_PREFIX = HOST_MARK.encode() + b"="


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
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            host_id = _host_id_of(int(name))
            if host_id is not None and host_ids(host_id) and start_time(int(name)) is not None:
                yield int(name)


def _host_id_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return None
    values = [entry[len(_PREFIX) :] for entry in entries if entry.startswith(_PREFIX)]
    return values[-1].decode(errors="replace") if values else None


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


def _kill(pid: int) -> bool:
    """SIGKILL to what `marked` found a moment ago, through a descriptor that cannot mean another process."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _host_id_of(pid) is None:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def host_id(mesh: str, host: int) -> str:
    """The mark of what a host of a mesh runs, for ever and among all of this machine."""
    return f"{mesh}.{host}"


async def end_marked(mesh: str, hosts: Iterable[int], deadline_s: float) -> int:
    """Kills what carries the marks of these hosts on this machine; returns how many processes there were."""
    marks = {host_id(mesh, host) for host in hosts}
    return await _end_all(lambda: list(marked(marks.__contains__)), deadline_s)


async def _end_all(pids: Callable[[], list[int]], deadline_s: float = 5.0) -> int:
    """Kills what `pids` names until it names nothing; returns how many there were.

    Asking again after each round catches what a dying process started meanwhile.
    """
    ended: set[int] = set()
    with anyio.move_on_after(deadline_s):
        while found := pids():
            for pid in found:
                if _kill(pid):
                    ended.add(pid)
            await anyio.sleep(0.01)
    return len(ended)
