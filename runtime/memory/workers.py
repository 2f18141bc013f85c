"""Threads that wait for transfers: made when they are needed, kept, and no reason for a program to stay."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

__all__ = ["THREAD_NAME", "Workers"]

THREAD_NAME = "milkweed-mover"


class Workers:
    """At most `most` threads; what is put in while all of them work waits its turn."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._ended = False

    def put(self, work: Callable[[], None]) -> None:
        """Has `work`, which raises nothing, called by one of them."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._threads < self._most and not self._ended:
                threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()
                self._threads += 1
        self._work.put(work)

    def end(self) -> None:
        """They end when they have nothing to do."""
        with self._lock:
            self._ended = True
            threads = self._threads
        for _ in range(threads):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            work = None  # an idle thread holds nobody's memory
            with self._lock:
                self._idle += 1
