"""Memory of a device by way of the host's: in pieces, of which one is moved while another is copied."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from .. import _native_memory as native
from ..errors import Unavailable
from .device import Copy, DeviceFailed, DeviceMemory
from .holding import Held
from .outcomes import error_of
from .pinned import Pinned, pinned
from .providers import HERE, Job

__all__ = [
    "AREAS",
    "PIECE",
    "NotReady",
    "failing",
    "filling",
    "on_host",
    "reading",
    "wait_until_ready",
]

PIECE = 4 * 1024 * 1024
AREAS = 2
_LOOK_S = 0.0005


class NotReady(Exception):
    """What the program had queued on the device is not done: `status` is that of the transfer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def wait_until_ready(
    memory: Held, deadline: float = math.inf, is_stopped: Callable[[], bool] = lambda: False
) -> None:
    """
    Raises:
        NotReady: the time is over, or it is to stop.
        DeviceFailed.
    """
    while isinstance(memory, DeviceMemory) and not memory.is_ready():
        if is_stopped():
            raise NotReady(native.STOPPED)
        if time.monotonic() >= deadline:
            raise NotReady(native.LATE)
        time.sleep(_LOOK_S)


def reading(memory: Held, offset: int, length: int) -> Generator[Pinned]:
    """The bytes in memory of the host, piece by piece; each is there until the next is asked for.

    Raises:
        DeviceFailed.
    """
    if isinstance(memory, Pinned):
        yield from _whole(memory, offset, length)
        return
    areas, copies = _areas(memory, length), deque[tuple[Copy, Pinned]]()
    try:
        for number, (at, size) in enumerate(_pieces(length)):
            part = areas[number % AREAS].part(0, size)
            copies.append((memory.read(offset + at, part), part))
            if len(copies) == AREAS:
                yield _first(copies)
        while copies:
            yield _first(copies)
    finally:
        for copy, _ in copies:
            copy.wait()


def filling(memory: Held, offset: int, length: int) -> Generator[Pinned]:
    """Memory of the host for the bytes, piece by piece: each is to be full when the next is asked for.

    All of it is where it belongs when there is no next.

    Raises:
        DeviceFailed.
    """
    if isinstance(memory, Pinned):
        yield from _whole(memory, offset, length)
        return
    areas, copies = _areas(memory, length), deque[Copy]()
    try:
        for number, (at, size) in enumerate(_pieces(length)):
            if len(copies) == AREAS:
                copies.popleft().wait()
            part = areas[number % AREAS].part(0, size)
            yield part
            copies.append(memory.write(offset + at, part))
    finally:
        for copy in copies:
            copy.wait()


@contextmanager
def on_host(job: Job) -> Iterator[Iterator[Job]]:
    """The job itself, or, where its memory here is a device's, jobs for pieces in the host's.

    Raises:
        MilkweedError: the device fails, or is not ready in time.
    """
    if isinstance(job.local, Pinned):
        yield iter((job,))
        return
    job.staged.add(HERE)
    with failing(job.local, job), closing(_jobs(job)) as jobs:
        yield jobs


def _jobs(job: Job) -> Generator[Job]:
    wait_until_ready(job.local, job.deadline, job.stop.is_set)
    if not job.length:  # whether it may be is asked all the same
        yield replace(job, local=pinned(memoryview(bytearray())))
    at = 0
    with closing((reading if job.write else filling)(job.local, 0, job.length)) as pieces:
        for piece in pieces:
            yield replace(job, offset=job.offset + at, length=piece.size, local=piece)
            at += piece.size


@contextmanager
def failing(memory: Held, job: Job) -> Iterator[None]:
    """What a device fails with, as what the transfer does."""
    try:
        yield
    except NotReady as error:
        raise error_of(error.status, job.handle, write=job.write) from None
    except DeviceFailed as error:
        where = memory.where if isinstance(memory, DeviceMemory) else "the device"
        raise Unavailable(
            "transfer_failed", f"memory on {where}: {error}", "See what the device's driver says."
        ) from None


def _whole(memory: Pinned, offset: int, length: int) -> Iterator[Pinned]:
    part = memory.part(offset, length)
    try:
        yield part
    finally:
        part.release()


def _first(copies: deque[tuple[Copy, Pinned]]) -> Pinned:
    copy, part = copies.popleft()
    copy.wait()
    return part


def _areas(memory: DeviceMemory, length: int) -> list[Pinned]:
    return [memory.area(min(PIECE, length)) for _ in range(min(AREAS, -(-length // PIECE)))]


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    return ((at, min(PIECE, length - at)) for at in range(0, length, PIECE))
