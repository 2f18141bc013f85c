"""A look-out for a process that says nothing any more, from a thread: the loop that hears it may itself be
waiting for it, in a system call that only that process can answer.
"""

from __future__ import annotations

import array
import fcntl
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["looking_out"]


@contextmanager
def looking_out(
    said: int, heard: Callable[[], float], is_too_quiet: Callable[[float, float], bool], look_s: float,
    end: Callable[[], None],
) -> Iterator[None]:  # fmt: skip
    """Calls `end` once, in the thread, when `is_too_quiet(last, now)`.

    `last` is when it was `heard` by the loop, or when more was found in the pipe `said`.
    """
    over = threading.Event()

    def look() -> None:
        waiting, last = 0, heard()
        while not over.wait(look_s):
            now, there = time.monotonic(), _bytes_in(said)
            last = max(last, heard(), now if there > waiting else 0.0)
            waiting = there
            if is_too_quiet(last, now):
                end()
                return

    thread = threading.Thread(target=look, name="mount-look-out", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _bytes_in(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
