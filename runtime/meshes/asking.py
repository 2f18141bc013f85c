"""Calls between nodes themselves, on the loop: one endpoint of one actor of one proc."""

from __future__ import annotations

import asyncio
from typing import Any

from ..addresses import address_of
from ..call import Connection
from ..errors import MilkweedError, Unavailable
from ..pickling import dumps
from ..wire import WireFrame
from .calling import outcome_of

__all__ = ["ask"]


async def ask(
    connection: Connection, actor_id: str, method: str, *args: Any, deadline_s: float | None = 600.0
) -> Any:
    """
    Raises:
        MilkweedError: what the endpoint raised; connection_lost, deadline_exceeded.
    """
    replied: asyncio.Future[WireFrame | MilkweedError] = asyncio.get_running_loop().create_future()

    def on_reply(reply: WireFrame | MilkweedError) -> None:
        if not replied.done():
            replied.set_result(reply)

    body, buffers = dumps((args, {}))
    call = connection.send_call((address_of(actor_id, method) + body, buffers), on_reply)
    try:
        async with asyncio.timeout(deadline_s) as timer:
            reply = await replied
    except TimeoutError:
        if not timer.expired():
            raise
        raise Unavailable(
            "deadline_exceeded",
            f"{connection.peer} did not answer {method} within {deadline_s:g} s",
            "Look at its stacks.",
        ) from None
    finally:
        if connection.forget(call):
            connection.send_cancel(call)
    return outcome_of(reply, lambda: f"{method} in {connection.peer}")
