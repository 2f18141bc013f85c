"""Things that come one by one from the node's thread, to `async for` and to `for`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

from .future import Future

__all__ = ["Feed"]

T = TypeVar("T")


class Feed(Generic[T]):
    """An iterator, for one reader, that ends when it is closed and all that came before was taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[T] = deque()
        self._next: Future[None] | None = None
        self._closed = False

    def put(self, item: T) -> None:
        """Any thread; nothing once closed."""
        self._wake(lambda: None if self._closed else self._items.append(item))

    def close(self) -> None:
        """Any thread."""

        def close() -> None:
            self._closed = True

        self._wake(close)

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while (more := self._more()) is not None:
            await more
        with self._lock:
            if self._items:
                return self._items.popleft()
        raise StopAsyncIteration

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        while (more := self._more()) is not None:
            more.get()
        with self._lock:
            if self._items:
                return self._items.popleft()
        raise StopIteration

    def _more(self) -> Future[None] | None:
        """What to wait for; None when there is an item, or there never will be."""
        with self._lock:
            if self._items or self._closed:
                return None
            if self._next is None:
                self._next = Future()
            return self._next

    def _wake(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
            waiting, self._next = self._next, None
        if waiting is not None:
            waiting.settle(lambda: None)
