"""`process_vm_readv` in one call on one thread, and memcpy. `python -m ... SIZE` is the target."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

__all__ = ["RawMemory", "kernel_call"]


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class RawMemory:
    def __init__(self, size: int) -> None:
        self._size = size
        self._target = subprocess.Popen(
            [sys.executable, "-m", __name__, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._target.stdout is not None
        self._there = int(self._target.stdout.readline())
        self._mine, self._other = np.full(size, 1, np.uint8), np.full(size, 2, np.uint8)

    def sample(self, times: int, calls: int) -> dict[str, float]:
        size = self._size
        here, other = self._mine.ctypes.data, self._other.ctypes.data
        read = kernel_call("process_vm_readv", self._target.pid, here, self._there)
        write = kernel_call("process_vm_writev", self._target.pid, here, self._there)
        return {
            "read": size / _median(times, lambda: read(size)) / 1e9,
            "write": size / _median(times, lambda: write(size)) / 1e9,
            "memcpy": size / _median(times, lambda: ctypes.memmove(here, other, size)) / 1e9,
            "small": _median(calls, lambda: read(8)) * 1e6,
        }

    def close(self) -> None:
        self._target.communicate()


def kernel_call(name: str, pid: int, here: int, there: int) -> Callable[[int], None]:
    """Moves so many bytes in one call."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype = ctypes.c_ssize_t

    def move(size: int) -> None:
        mine, theirs = _Vector(here, size), _Vector(there, size)
        if function(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) != size:
            raise OSError(ctypes.get_errno(), name)

    return move


def _median(times: int, work: Callable[[], object]) -> float:
    work()
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


if __name__ == "__main__":
    memory = np.full(int(sys.argv[1]), 7, np.uint8)
    print(memory.ctypes.data, flush=True)
    sys.stdin.read()
