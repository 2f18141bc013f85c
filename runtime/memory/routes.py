"""The ways to the regions of one owner: found when needed, the best of those that lead there taken."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping

from ..errors import InvalidArgument, MilkweedError, Unavailable
from .choosing import NAMES, Transport, by_preference, smoothed
from .handle import Handle
from .providers import Job, Line, Provider, Unreachable

__all__ = ["Route"]

logger = logging.getLogger(__name__)

_LEAST_MEASURED = 1024 * 1024


class Route:
    """Of regions that can be reached alike; `only` is the one way to be taken. Any thread."""

    def __init__(self, providers: Mapping[str, Provider], only: str | None = None) -> None:
        """
        Raises:
            InvalidArgument: there is no such way.
        """
        if only is not None and only not in providers:
            raise InvalidArgument(
                "invalid_argument", f"no transport {only!r}", f"There are: {', '.join(NAMES)}."
            )
        self._providers = providers
        self._names = NAMES if only is None else (only,)
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._speeds: dict[str, float] = {}
        self._staged: dict[str, frozenset[str]] = {}
        self._passed_over: dict[str, str] = {}
        self._closed: set[str] = set()
        self._order: list[str] = []
        self._reorder()

    def quick(self, handle: Handle) -> int:
        """So many bytes are moved in less time than it takes to have a thread do it."""
        if handle.device:
            return 0
        for name in self._order:
            if not self._providers[name].at_hand:
                return 0
            try:
                line = self._line(name, handle)
            except MilkweedError:
                return sys.maxsize  # so is the error
            if line is not None:
                return line.quick
        return 0

    def move(self, job: Job) -> None:
        """
        Raises:
            Unavailable: transport_unusable, with what is wrong with each way.
            MilkweedError: as `outcomes` has them.
        """
        for name in self._order:
            line = self._line(name, job.handle)
            if line is None:
                continue
            started = time.perf_counter()
            try:
                line.move(job)
            except Unreachable as why:
                self._pass_over(name, why)
                continue
            except MilkweedError as error:
                if error.code == "buffer_owner_lost":
                    self._lines.clear()  # nor is what they hold of it kept
                raise
            self._staged[name] = frozenset(job.staged)
            self._measured(name, job.length, time.perf_counter() - started)
            return
        raise self._unusable(job.handle)

    def transport(self, handle: Handle) -> Transport:
        """What the next transfer will be made by, as far as it is known without waiting.

        Raises:
            Unavailable: transport_unusable.
            MilkweedError: buffer_owner_lost.
        """
        for name in self._order:
            if self._line(name, handle) is not None:
                with self._lock:
                    passed_over = {
                        other: why for other, why in self._passed_over.items() if other in self._before(name)
                    }
                    speed = self._speeds.get(name)
                    staged = self._staged.get(name, ())
                return Transport(name, None if speed is None else speed / 1e9, passed_over, staged)
        raise self._unusable(handle)

    def _before(self, name: str) -> tuple[str, ...]:
        return NAMES[: NAMES.index(name)]

    def _reorder(self) -> None:
        self._order = by_preference([name for name in self._names if name not in self._closed], self._speeds)

    def _line(self, name: str, handle: Handle) -> Line | None:
        found = self._lines.get(name)
        if found is None:
            try:
                found = self._providers[name].reach(handle)
            except Unreachable as why:
                self._pass_over(name, why)
                return None
            self._lines[name] = found
        return found

    def _pass_over(self, name: str, why: Unreachable) -> None:
        if why.forbidden and self._passed_over.get(name) != why.reason:  # once for what is tried again
            logger.warning("buffers of another process go a slower way than %s: %s", name, why.reason)
        with self._lock:
            self._passed_over[name] = why.reason
            if why.lasting:
                self._closed.add(name)
                self._reorder()

    def _measured(self, name: str, moved: int, seconds: float) -> None:
        if moved >= _LEAST_MEASURED:
            with self._lock:
                self._passed_over.pop(name, None)
                self._speeds[name] = smoothed(self._speeds.get(name), moved / seconds)
                self._reorder()

    def _unusable(self, handle: Handle) -> Unavailable:
        reasons = "; ".join(f"{name}: {self._passed_over.get(name, 'not tried')}" for name in self._names)
        return Unavailable(
            "transport_unusable",
            f"no way leads to the buffer of {handle.owner} ({reasons})",
            "Mend one of them, or move the data in a message.",
        )
