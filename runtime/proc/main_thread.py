"""The thread that runs sync endpoints, one at a time, in the order in which they came."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from ..node.interrupt import Interrupted, interrupt_thread, take_back

__all__ = ["Job", "MainThread"]

T = TypeVar("T")


class Job(Protocol):
    """A call for the main thread. `run` answers it, whatever happens; `drop_in_turn`: it was cancelled."""

    label: str

    def run(self, main: MainThread) -> None: ...
    def drop_in_turn(self) -> None: ...


class MainThread:
    """`run_forever` is called by that thread; everything else from any other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy: tuple[str, float] | None = None
        self._inside: Job | None = None
        self._cancelled: set[Job] = set()
        self._ident = 0

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """`run_forever` returns once what was put before has run."""
        self._jobs.put(None)

    def busy(self) -> tuple[str, float] | None:
        """The label of the call that runs and for how many seconds it has, if one does."""
        busy = self._busy
        return None if busy is None else (busy[0], time.monotonic() - busy[1])

    def cancel(self, job: Job) -> None:
        """A running one gets `Interrupted` at its next bytecode, one that waits is dropped in its turn."""
        with self._lock:
            self._cancelled.add(job)
            if self._inside is job:
                interrupt_thread(self._ident)

    def run_forever(self) -> None:
        self._ident = threading.get_ident()
        while True:
            job = self._jobs.get()
            if job is None:
                return
            if job in self._cancelled:
                job.drop_in_turn()
            else:
                self._busy = (job.label, time.monotonic())
                job.run(self)
                self._busy = None
            self._cancelled.discard(job)

    def interruptible(self, job: Job, work: Callable[[], T]) -> T:
        """What `work` returns. Only in here a cancel interrupts this thread.

        Raises:
            Interrupted: the job was cancelled.
        """
        with self._lock:
            if job in self._cancelled:
                raise Interrupted
            self._inside = job
        try:
            return work()
        finally:
            while not self._left():
                pass

    def _left(self) -> bool:
        try:
            with self._lock:
                take_back(self._ident)
                self._inside = None
        except Interrupted:  # it came at the last moment; none can come after this
            return False
        return True
