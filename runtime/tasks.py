"""Task groups for context managers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

__all__ = ["alone", "background_tasks"]


@asynccontextmanager
async def background_tasks() -> AsyncIterator[anyio.abc.TaskGroup]:
    """A task group that is cancelled at the end of the block, and that lets a lone exception out as itself.

    A caller of a context manager that uses tasks within should not have to know that it does.
    """
    try:
        async with anyio.create_task_group() as group:
            try:
                yield group
            finally:
                group.cancel_scope.cancel()
    except BaseExceptionGroup as group_error:
        raise alone(group_error) from None


def alone(error: BaseException) -> BaseException:
    """The one exception that a group holds; a group of several, and what is no group, as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
