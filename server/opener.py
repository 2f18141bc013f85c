"""Opens the meshes beside the protocol: the server answers at once, and tells why when it has none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc

if TYPE_CHECKING:
    from ..runtime.client import Meshes

__all__ = ["Opener"]


class Opener:
    """Holds one open `Meshes` in a task of its own; a failure is told to whoever asks, then tried again."""

    def __init__(self, open_meshes: Callable[[], AbstractAsyncContextManager[Meshes]]) -> None:
        self._open = open_meshes
        self._meshes: Meshes | None = None
        self._error: Exception = RuntimeError("the meshes were never opened")
        self._settled = anyio.Event()
        self._retry = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None

    async def get(self) -> Meshes:
        """The open meshes.

        Raises:
            Exception: what kept them from being opened; the next call tries again.
        """
        await self._settled.wait()
        if self._meshes is None:
            self._settled = anyio.Event()
            self._retry.set()
            await self._settled.wait()
        if self._meshes is None:
            raise self._error
        return self._meshes

    async def tried(self) -> None:
        """Returns when they were opened, or could not be."""
        await self._settled.wait()

    @property
    def opened(self) -> Meshes | None:
        """The open meshes, where they are: nothing is tried again."""
        return self._meshes

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._hold)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _hold(self) -> None:
        while True:
            try:
                async with self._open() as self._meshes:
                    self._settled.set()
                    await anyio.sleep_forever()
            except Exception as error:
                self._meshes, self._error = None, error
                self._retry = anyio.Event()
                self._settled.set()
                await self._retry.wait()
