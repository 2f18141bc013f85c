"""`process_vm_readv` in one call on one thread, and memcpy. `python -m ... SIZE` is the target."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

__all__ = ["RawMemory"]


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
        self._mine = (ctypes.c_char * size).from_buffer(bytearray(b"\1") * size)
        self._other = (ctypes.c_char * size).from_buffer(bytearray(b"\2") * size)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def sample(self, times: int, calls: int) -> dict[str, float]:
        size = self._size
        here, other = ctypes.addressof(self._mine), ctypes.addressof(self._other)
        read = self._call(self._libc.process_vm_readv)
        return {
            "read": size / _median(times, lambda: read(size)) / 1e9,
            "write": size / _median(times, lambda: self._call(self._libc.process_vm_writev)(size)) / 1e9,
            "memcpy": size / _median(times, lambda: ctypes.memmove(here, other, size)) / 1e9,
            "small": _median(calls, lambda: read(8)) * 1e6,
        }

    def _call(self, function: Callable[..., int]) -> Callable[[int], None]:
        function.restype = ctypes.c_ssize_t  # type: ignore[attr-defined]
        pid, here = self._target.pid, ctypes.addressof(self._mine)

        def move(size: int) -> None:
            mine, theirs = _Vector(here, size), _Vector(self._there, size)
            if function(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) != size:
                raise OSError(ctypes.get_errno(), "process_vm")

        return move

    def close(self) -> None:
        self._target.communicate()


def _median(times: int, work: Callable[[], object]) -> float:
    work()
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


if __name__ == "__main__":
    memory = (ctypes.c_char * int(sys.argv[1])).from_buffer(bytearray(b"\7") * int(sys.argv[1]))
    print(ctypes.addressof(memory), flush=True)
    sys.stdin.read()
