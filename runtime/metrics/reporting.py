"""`milkweed.report(step=3, loss=0.5)`: steps and metrics of a rank, where its user wants to tell them.

This file has to work alone, in any Python from 3.8: where Milkweed is not installed beside the user's
program, the hook in each rank offers it (`agent/hook/offered`). So it imports nothing of ours.

Each process of a rank appends lines to a file of its own, `<label>.metrics.<pid>` in the run's directory:
`[1764524000.123, 3, {"loss": 0.5}]`, with NaN and Infinity as Python's json writes them. What a program does
with descriptors and forks is its own affair, so each write looks whose descriptor it has.
"""

from __future__ import annotations

import os
import time
from json import dumps

TYPE_CHECKING = False  # typing takes a millisecond to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["LIMIT_BYTES", "Reporter", "report"]

LIMIT_BYTES = 16 * 1024 * 1024
_SIGN_OF_LIFE_S = 1.0
_LONGEST_NAME = 200
_MOST_METRICS = 100
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def report(step: Any = None, **metrics: Any) -> None:
    """Tells the step that this rank has reached, and any numbers: `milkweed.report(step=3, loss=loss)`.

    It costs a few microseconds and never raises. Outside a run it does nothing. Numbers are floats, ints,
    numpy scalars or tensors of one element (one on a GPU is waited for); anything else is left out. NaN and
    infinities are kept as such. From any thread, and in any process of a rank.
    """
    try:
        _reporter.report(step, metrics)
    except Exception:
        return


class Reporter:
    """Writes for the process that it is used in, after forks too. Not to be locked: a line is one write.

    Above half of `limit` bytes it writes every second report, above three quarters every fourth, and so on,
    so the file never grows over its limit; the first non-finite value of each name is always written. While
    reports are left out, the file's time is its sign of life.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._room = limit - limit // 16  # the rest is for values that must not be lost
        self._pid = 0
        self._fd = -1
        self._file = (-1, -1)
        self._opened: dict[int, tuple[int, tuple[int, int]]] = {}
        self._names: dict[str, str] = {}
        self._bad: set[str] = set()
        self._level = 0
        self._count = 0
        self._told_at = 0.0

    def report(self, step: Any, metrics: Mapping[str, Any]) -> None:
        """
        Raises:
            OSError: the file cannot be written.
        """
        if self._pid != os.getpid():
            self._enter_process()
        if self._fd < 0:
            return
        found = self._status()
        if found is None:
            self._fd = -1
            self._opened.pop(self._pid, None)
            self._enter_process()
            found = self._status()
            if found is None:
                return
        now = time.time()
        parts = []
        bad = False
        for name, value in metrics.items():
            kind = type(value)
            if kind is not float:
                value = _number(value)  # noqa: PLW2901
                if value is None:
                    continue
            if value - value == 0.0:
                text = repr(value)
            else:
                text = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
                bad = bad or name not in self._bad
                self._bad.add(name)
            key = self._names.get(name)
            if key is None:
                key = self._learn(name)
            parts.append(key + text)
        if not bad and found.st_size * 2 > self._room and self._left_out(found.st_size, now):
            return
        self._told_at = now
        where = "null" if step is None else repr(step) if type(step) is int else _step(step)
        line = "[%.3f, %s, {%s}]\n" % (now, where, ", ".join(parts[:_MOST_METRICS]))  # noqa: UP031
        if found.st_size + len(line) <= (self._limit if bad else self._room):
            os.write(self._fd, line.encode())

    def _status(self) -> os.stat_result | None:
        """Of our file; None where the program has closed it: the number may be a file of its own by now."""
        try:
            found = os.fstat(self._fd)
        except OSError:
            return None
        return found if (found.st_dev, found.st_ino) == self._file else None

    def _enter_process(self) -> None:
        """What another process has opened is left to it: a fork shares the descriptor, not the file."""
        pid = os.getpid()
        self._bad = set()
        self._level = self._count = 0
        self._leave_file()
        directory = os.environ.get("MILKWEED_RUN_DIR")
        if not directory:
            self._pid = pid
            return
        rank = os.environ.get("MILKWEED_RANK") or os.environ.get("RANK")
        label = "rank-" + rank if rank else os.environ["MILKWEED_LABEL"]
        path = os.path.join(directory, "%s.metrics.%d" % (label, pid))  # noqa: UP031
        fd = os.open(path, _FLAGS, 0o600)
        found = os.fstat(fd)
        mine = (fd, (found.st_dev, found.st_ino))
        kept = self._opened.setdefault(pid, mine)  # of threads that begin at once one wins
        if kept is not mine:
            os.close(fd)
        self._fd, self._file = kept
        self._pid = pid  # last: who finds it here finds the file too

    def _leave_file(self) -> None:
        """Of the process that this one was forked from."""
        for other in [pid for pid in self._opened if pid != os.getpid()]:
            fd, file = self._opened.pop(other, (-1, (-1, -1)))
            self._fd, self._file = fd, file
            if self._status() is not None:
                os.close(fd)
            self._fd = -1

    def _learn(self, name: str) -> str:
        key = self._names[name] = dumps(str(name)[:_LONGEST_NAME]) + ": "
        if len(self._names) > 10 * _MOST_METRICS:  # names that are made up as it goes
            self._names = {}
        return key

    def _left_out(self, size: int, now: float) -> bool:
        """Whether this report is not written, since the file is too long for all of them."""
        left = self._room - size
        level = 1
        while left * 2 ** (level + 1) < self._room and level < 24:
            level += 1
        if level > self._level:
            if self._level == 0:
                note = '{"note": "more than %d MiB: not every report is kept from here on"}\n'
                os.write(self._fd, (note % (self._room // 2 >> 20)).encode())
            self._level = level
        self._count += 1
        if self._count % 2**level == 0 and left > 0:
            return False
        if now - self._told_at > _SIGN_OF_LIFE_S:
            self._told_at = now
            os.utime(self._fd)
        return True


def _number(value: Any) -> float | None:
    """A float, or None for what is no number."""
    try:
        # A tensor that has a gradient would warn.
        detach = getattr(value, "detach", None)
        if type(value) in (str, bytes):
            return None
        return float(value if detach is None else detach())
    except Exception:
        return None


def _step(step: Any) -> str:
    try:
        return repr(int(step))
    except Exception:
        return "null"


_reporter = Reporter()
