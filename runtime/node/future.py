"""The result of something under way elsewhere: awaited in async code, got in sync code."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import Conflict

if TYPE_CHECKING:
    from ..records import CallWait  # which is not light

__all__ = ["Future"]

T = TypeVar("T")


class Future(Generic[T]):
    """Settled once, from any thread; waited for from any thread but the node's own, or awaited anywhere.

    `deadline_s` counts from when it is first waited for, however often it is waited for then. A subclass says
    what its passing does, and what the cancel of a waiter does: either is to see to it that the future is
    settled soon.
    """

    __slots__ = ("_deadline_at", "_deadline_s", "_done", "_lock", "_take", "_waiters")

    def __init__(self, *, deadline_s: float | None = None) -> None:
        self._lock = threading.Lock()
        self._waiters: list[Callable[[], None]] = []
        self._done = False
        self._take: Callable[[], T] | None = None
        self._deadline_s = deadline_s
        self._deadline_at: float | None = None

    def done(self) -> bool:
        return self._done

    def waits_for(self) -> CallWait | None:
        """The call that it is of, for those who look at a process that waits; any thread."""
        return None

    def settle(self, take: Callable[[], T]) -> None:
        """From now on waiters go on with what `take()` returns or raises, called in their thread."""
        with self._lock:
            if self._done:
                return
            self._take = take
            self._done = True
            waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def cancel(self) -> None:
        """Ends what is under way, where that can be; what is done stays done."""
        if not self._done:
            self._on_cancel()

    def get(self, timeout_s: float | None = None) -> T:
        """Waits for it in sync code.

        Raises:
            TimeoutError: after `timeout_s`; it goes on, and can be waited for again.
            Conflict: called in the thread that would settle it.
        """
        from .node import on_node_thread

        if not self._done:
            if on_node_thread():
                raise Conflict(
                    "would_deadlock",
                    "get() waits for what this very thread is to do",
                    "Await it: async endpoints share their thread with the node.",
                )
            woken = threading.Lock()  # an Event is several objects, and Python in the thread that sets it
            woken.acquire()
            self._add(woken.release)
            try:
                if not self._wait(woken, timeout_s):
                    raise TimeoutError(f"not done within {timeout_s} s")
            except TimeoutError:
                raise
            except BaseException:  # Ctrl-C, or the cancel of the endpoint that waits here
                self.cancel()
                raise
        return self._result()

    def _wait(self, woken: threading.Lock, timeout_s: float | None) -> bool:
        left_s = self._left_s()
        if left_s is None or (timeout_s is not None and timeout_s <= left_s):
            return _acquired(woken, timeout_s)
        if _acquired(woken, left_s):
            return True
        self._expire()
        return _acquired(woken, None if timeout_s is None else timeout_s - left_s)

    def _left_s(self) -> float | None:
        if self._deadline_s is None or self._deadline_s > threading.TIMEOUT_MAX:
            return None
        now = time.monotonic()
        if self._deadline_at is None:
            self._deadline_at = now + self._deadline_s
        return max(0.0, self._deadline_at - now)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            yield from self._until_done().__await__()
        return self._result()

    async def _until_done(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        left_s = self._left_s()
        timer = None if left_s is None else loop.call_later(left_s, self._expire)
        try:
            self._add(_waker(loop, waiter))
            await waiter
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _add(self, wake: Callable[[], None]) -> None:
        with self._lock:
            if not self._done:
                self._waiters.append(wake)
                return
        wake()

    def _expire(self) -> None:
        if not self._done:
            self._on_deadline()

    def _on_deadline(self) -> None: ...

    def _on_cancel(self) -> None: ...

    if not TYPE_CHECKING:  # whose checkers know that it is a Future

        def __getattr__(self, name: str) -> object:
            raise AttributeError(
                f"this is a Future, without {name!r}: await it, or call .get(), and use what that gives",
                name=name,
            )

    def _result(self) -> T:
        assert self._take is not None
        return self._take()


def _acquired(lock: threading.Lock, timeout_s: float | None) -> bool:
    return lock.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))


def _waker(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> Callable[[], None]:
    home = threading.get_ident()

    def set_result() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake() -> None:
        if threading.get_ident() == home:
            set_result()
        else:
            with suppress(RuntimeError):  # that loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(set_result)

    return wake
