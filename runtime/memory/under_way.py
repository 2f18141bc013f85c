"""Transfers under way: one, or a batch that is waited for once."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..node import Future, on_node_thread
from .pinned import Pinned
from .providers import Job
from .routes import Route
from .workers import Workers

__all__ = ["Movers", "Moving", "threads_for"]

_MOST_WORKERS = 32
_LANES = 8
_MOST_AT_ONCE = 64
_LEAST_A_THREAD = 8 * 1024 * 1024
_MOST_THREADS = 8

Way = tuple[Route, Job]


class Moving(Future[None]):
    """Settled when all of it has ended, with the first error in the order of the batch.

    `help`, where it is given, does what nobody does yet, in the thread that calls it.
    """

    __slots__ = ("_jobs", "help")

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__()
        self._jobs = jobs
        self.help: Callable[[], None] | None = None

    def settle(self, take: Callable[[], None]) -> None:
        """What was moved is no longer held, whoever keeps this."""
        self._jobs, self.help = (), None
        super().settle(take)

    def get(self, timeout_s: float | None = None) -> None:
        """As any future's: who waits without end works in the meantime, rather than have a thread woken."""
        help_it = self.help
        if timeout_s is None and help_it is not None and not self.done() and not on_node_thread():
            help_it()
        del help_it
        super().get(timeout_s)

    def _on_cancel(self) -> None:
        for job in self._jobs:
            job.cancel()


class Movers:
    """The threads that transfers take; what is quick is moved by the caller's own."""

    def __init__(self) -> None:
        self._workers = Workers(_MOST_WORKERS)
        self._lock = threading.Lock()
        self._active = 0

    def start(self, ways: Sequence[Way]) -> Moving:
        moving = Moving([job for _, job in ways])
        if _is_quick(ways):
            errors = [_done(route, job) for route, job in ways]
            moving.settle(_taker(errors))
            return moving
        batch = _Batch(ways, moving, self._moved)
        if all(_quick(route, job) for route, job in ways):
            # At the speed of memory. A transfer over a socket would keep Ctrl-C waiting.
            moving.help = batch.run
        for _ in range(min(len(ways), _LANES)):
            self._workers.put(batch.run)
        return moving

    def end(self) -> None:
        self._workers.end()

    def _moved(self, route: Route, job: Job) -> Exception | None:
        with self._lock:
            self._active += 1
            active = self._active
        if job.length >= 2 * _LEAST_A_THREAD:
            job.threads = threads_for(job.length, _idle_processors(), active)
        try:
            return _done(route, job)
        finally:
            with self._lock:
                self._active -= 1


def threads_for(length: int, idle: int, active: int) -> int:
    """How many threads a transfer takes: one, and of the idle processors its share among `active` ones.

    More than the machine has room for would make it slower than one.
    """
    return max(1, min(length // _LEAST_A_THREAD, 1 + idle // active, _MOST_THREADS))


def _idle_processors() -> int:
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            running = int(file.read(64).split()[3].partition(b"/")[0])
    except (OSError, ValueError, IndexError):
        return 0
    return max(0, len(os.sched_getaffinity(0)) - running)


class _Batch:
    """Taken from by several workers, until nothing is left."""

    def __init__(
        self, ways: Sequence[Way], moving: Moving, move: Callable[[Route, Job], Exception | None]
    ) -> None:
        self._moving = moving
        self._move = move
        self._left = deque(enumerate(ways))
        self._errors: list[Exception | None] = [None] * len(ways)
        self._undone = len(ways)
        self._lock = threading.Lock()

    def run(self) -> None:
        while True:
            try:
                at, (route, job) = self._left.popleft()
            except IndexError:
                return
            self._errors[at] = self._move(route, job)
            del route, job  # whoever waits finds its memory let go
            with self._lock:
                self._undone -= 1
                is_last = not self._undone
            if is_last:
                self._moving.settle(_taker(self._errors))


def _is_quick(ways: Sequence[Way]) -> bool:
    """Whether all of it takes no longer than to have it done elsewhere."""
    if len(ways) == 1:
        ((route, job),) = ways
        return not job.length or job.length <= _quick(route, job)
    total = sum(job.length for _, job in ways)
    return len(ways) <= _MOST_AT_ONCE and all(
        not job.length or total <= _quick(route, job) for route, job in ways
    )


def _quick(route: Route, job: Job) -> int:
    """Copies of a device, or what it has to do first, are waited for by another thread."""
    return route.quick(job.handle) if isinstance(job.local, Pinned) else 0


def _done(route: Route, job: Job) -> Exception | None:
    try:
        route.move(job)
    except Exception as error:
        return error
    return None


def _taker(errors: Sequence[Exception | None]) -> Callable[[], None]:
    def take() -> None:
        for error in errors:
            if error is not None:
                raise error

    return take
