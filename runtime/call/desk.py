"""The called end of services: named actors with async endpoints, on the loop that reads the socket."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Mapping
from typing import Any

import anyio

from ..actor import Actor, endpoints_of
from ..errors import InvalidArgument, MilkweedError, NotFound, ProtocolError, RemoteFailure
from ..pickling import dumps, loads
from ..tasks import alone
from ..wire import SAME_VERSION, Kind, WireFrame
from .connection import Connection

__all__ = ["Desk"]

logger = logging.getLogger(__name__)


class Desk:
    """Answers the calls of one peer, each in a task of its own; the peer's end cancels them."""

    def __init__(self, actors: Mapping[str, Actor]) -> None:
        self._actors = dict(actors)
        self._tasks: dict[int, tuple[asyncio.Task[None], anyio.CancelScope]] = {}
        self._ended = asyncio.Event()

    def called(self, connection: Connection, frame: WireFrame) -> None:
        scope = anyio.CancelScope()  # unlike a cancel of the task, it heeds what an endpoint shields
        task = asyncio.get_running_loop().create_task(self._serve(connection, frame, scope))
        self._tasks[frame.call] = (task, scope)
        task.add_done_callback(lambda _: self._tasks.pop(frame.call, None))

    def cancelled(self, _connection: Connection, call: int) -> None:
        if serving := self._tasks.get(call):
            serving[1].cancel()

    def ended(self, _connection: Connection) -> None:
        for _, scope in self._tasks.values():
            scope.cancel()
        self._ended.set()

    async def idle(self) -> None:
        """Returns when no call is under way."""
        while self._tasks:
            await asyncio.wait([task for task, _ in self._tasks.values()])

    async def _serve(self, connection: Connection, frame: WireFrame, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                kind, answer = Kind.RESULT, dumps(await self._invoke(frame))
            except Exception as error:
                kind, answer = Kind.ERROR, dumps(_as_ours(error))
            connection.reply(kind, frame.call, answer)
            if connection.is_full:
                await connection.drained()

    async def _invoke(self, frame: WireFrame) -> Any:
        try:
            name, method, args, kwargs = loads(frame.body, frame.buffers)
        except Exception as error:
            raise ProtocolError(
                "protocol_error", f"a call could not be read: {error!r}", SAME_VERSION
            ) from None
        actor = self._actors.get(name)
        if actor is None or method not in endpoints_of(actor):
            raise NotFound(
                "endpoint_not_found",
                f"no endpoint {name}.{method}; actors here: {', '.join(sorted(self._actors))}",
                SAME_VERSION,
            )
        return await getattr(actor, method)(*args, **kwargs)


def _as_ours(error: Exception) -> MilkweedError:
    failure = alone(error)
    if isinstance(failure, MilkweedError) and not (
        isinstance(failure, InvalidArgument) and failure.code == "unpicklable"
    ):
        return failure
    logger.error("a call failed", exc_info=error)
    return RemoteFailure(
        "internal_error",
        f"{type(failure).__name__}: {failure}",
        "This is a fault in Milkweed; its log has the traceback.",
        "".join(traceback.format_exception(error)),
    )
