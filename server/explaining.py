"""Errors in words for clients: of a tool, and of every other request."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from ..runtime.errors import Conflict, InvalidArgument, MilkweedError, NotFound, RemoteFailure, Unavailable
from ..tools.verdicts import clean

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ..runtime.client import Meshes
    from .opener import Opener

__all__ = ["deadline_exceeded", "explain", "in_words", "wire_text", "wire_value", "with_meshes"]

_log = logging.getLogger("milkweed.server")

_T = TypeVar("_T")


async def with_meshes(
    context: ServerRequestContext[Opener],
    deadline_s: float,
    work: Callable[[Meshes], Awaitable[_T]],
    *,
    uri: str | None = None,
) -> _T:
    """
    Raises:
        MCPError: what it raised, in the words of a tool's error.
    """
    with in_words(context.method, uri=uri):
        try:
            with anyio.fail_after(deadline_s):
                return await work(await context.lifespan_context.get())
        except TimeoutError:
            raise deadline_exceeded(context.method, deadline_s) from None


@contextmanager
def in_words(what: str, *, uri: str | None = None) -> Iterator[None]:
    """`uri`: of the resource that is asked for. An error that there is none carries it, as clients expect.

    Raises:
        MCPError: what was raised within, in the words of a tool's error.
    """
    try:
        yield
    except Exception as error:
        told = explain(what, error)
        is_callers = isinstance(told, NotFound | InvalidArgument | Conflict)
        code = types.INVALID_PARAMS if is_callers else types.INTERNAL_ERROR
        data = {"uri": wire_text(uri)} if uri is not None and isinstance(told, NotFound) else None
        raise MCPError(code, wire_text(str(told)), data) from error


def deadline_exceeded(tool: str, deadline_s: float) -> MilkweedError:
    return Unavailable(
        "deadline_exceeded",
        f"{tool} had no answer within {deadline_s:g} s",
        "What it began may go on: call list_meshes and mesh_status to see, then call it again.",
    )


def explain(tool: str, error: Exception) -> MilkweedError:
    """The error to tell: what was raised on purpose as it is, and anything else as `internal_error`."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, RemoteFailure):
        _log.error("%s: %s\n%s", tool, error, error.remote_traceback)
        return error
    if isinstance(error, MilkweedError):
        return error
    _log.error("%s failed", tool, exc_info=error)
    return RemoteFailure(
        "internal_error",
        f"{tool} failed in a way that nobody foresaw ({type(error).__name__})",
        "The server's log has the details. Call list_meshes and mesh_status to see what stands.",
    )


def wire_text(text: str) -> str:
    """Text as it may be shown: no control characters, no halves of surrogate pairs, whoever wrote it."""
    return clean(text)


def wire_value(value: Any) -> Any:
    if isinstance(value, str):
        return wire_text(value)
    if isinstance(value, Mapping):
        return {wire_text(str(key)): wire_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [wire_value(item) for item in value]
    return value
