"""The thread that runs sync endpoints, one at a time, in the order in which they came."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from ..node.interrupt import Interrupted, interrupt_thread

__all__ = ["WAKE", "Job", "MainThread"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

WAKE = signal.SIGURG
"""Gets a proc's main thread out of a system call, so that an interrupt reaches it there."""

_LEAVE_S = 3.0
_WAKE_S = 0.02
_JUMPS = 8


class Job(Protocol):
    """A call for the main thread. `run` answers it, whatever happens; `drop_in_turn`: it was cancelled."""

    cancelled: bool

    @property
    def label(self) -> str: ...

    def run(self, main: MainThread) -> None: ...
    def drop_in_turn(self) -> None: ...


class MainThread:
    """`run_forever` is called by that thread; everything else from any other.

    With `of_process` it is the process's main thread: what ends it ends the process.
    """

    def __init__(self, *, of_process: bool = False) -> None:
        self._of_process = of_process
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy: tuple[str, float] | None = None
        self._running: Job | None = None
        self._inside: Job | None = None
        self._leaving: BaseException | None = None
        self._ident = 0

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def busy(self) -> tuple[str, float] | None:
        """The label of the call that runs and for how many seconds it has, if one does."""
        busy = self._busy
        return None if busy is None else (busy[0], time.monotonic() - busy[1])

    @property
    def running(self) -> Job | None:
        """The call that runs, if one does."""
        return self._running

    @property
    def ident(self) -> int:
        """Of the thread, 0 before it runs."""
        return self._ident

    def cancel(self, job: Job) -> bool:
        """A running one gets `Interrupted` at its next bytecode; whether it does not run, and never will."""
        with self._lock:
            job.cancelled = True
            if self._inside is job:
                self._interrupt()
            return self._running is not job

    def leave(self, error: BaseException) -> None:
        """An endpoint raised what ends a process: the main thread raises it, out of whatever it is in."""
        if not self._of_process:
            logger.error("an endpoint raised %r, which ends no process that it shares", error)
            return
        with self._lock:
            if self._leaving is not None:
                return
            self._leaving = error
            if self._inside is not None:
                self._interrupt()
        self._jobs.put(None)
        stuck = threading.Timer(_LEAVE_S, self._leave_stuck)
        stuck.daemon = True
        stuck.start()

    def _leave_stuck(self) -> None:
        """The main thread is in native code, or waits for other threads of the user."""
        code = self._leaving.code if isinstance(self._leaving, SystemExit) else 1
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)

    def _interrupt(self) -> None:
        interrupt_thread(self._ident)
        if self._of_process:
            self._wake(self._inside, _WAKE_S)

    def _wake(self, job: Job | None, again_s: float) -> None:
        """Under the lock; and again, since a signal just before a system call does not end that."""
        if self._inside is not job or job is None:
            return
        signal.pthread_kill(self._ident, WAKE)
        timer = threading.Timer(again_s, self._wake_again, (job, min(1.0, 2 * again_s)))
        timer.daemon = True
        timer.start()

    def _wake_again(self, job: Job, again_s: float) -> None:
        with self._lock:
            self._wake(job, again_s)

    def run_forever(self) -> None:
        """
        Raises:
            BaseException: what `leave` was told.
        """
        self._ident = threading.get_ident()
        while True:
            try:
                self._run_next()
            except Interrupted:  # it came when its endpoint had just ended, or the process ends
                self._has_left()
            self._running = self._busy = None
            if self._leaving is not None:
                raise self._leaving

    def _run_next(self) -> None:
        job = self._jobs.get()
        if job is None:
            return
        with self._lock:
            begins = not job.cancelled and self._leaving is None
            if begins:
                self._running, self._busy = job, (job.label, time.monotonic())
        if begins:
            job.run(self)
        elif job.cancelled:
            job.drop_in_turn()

    def interruptible(self, job: Job, work: Callable[[], T]) -> T:
        """What `work` returns. Only in here a cancel interrupts this thread.

        Raises:
            Interrupted: the job was cancelled.
        """
        with self._lock:
            if job.cancelled or self._leaving is not None:
                raise Interrupted
            self._inside = job
        try:
            return work()
        finally:
            while not self._has_left():
                pass

    def _has_left(self) -> bool:
        try:
            with self._lock:
                self._inside = None
            # One that was put into this thread and not raised yet is raised here. To take it back instead
            # would leave the interpreter looking for it at every jump, for ever (CPython 3.11).
            for _ in range(_JUMPS):
                pass
        except Interrupted:  # it came at the last moment; none can come after this
            return False
        return True
