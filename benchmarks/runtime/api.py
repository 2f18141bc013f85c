"""The names that the programs use, of the side that this process is (`BENCH_SIDE`); where the sides differ.

In the process that compares there is no side: the programs can be imported there, and not be run.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import TYPE_CHECKING, Any

__all__ = ["SIDE", "Actor", "endpoint", "in_thread", "spawn", "start_procs", "stop"]

SIDE = os.environ.get("BENCH_SIDE", "")
"""`ours`, `monarch`, `bare`, or empty in the process that compares."""

if TYPE_CHECKING or SIDE == "ours":
    from milkweed.runtime import Actor, endpoint, this_host
elif SIDE == "monarch":
    from monarch.actor import Actor, endpoint, this_host
else:
    from .bare import Actor, endpoint, this_host


async def start_procs(count: int) -> Any:
    """A mesh of procs with one dimension, `gpus`."""
    return await _ready(this_host().spawn_procs(per_host={"gpus": count}))


async def spawn(procs: Any, name: str, cls: type, *arguments: Any) -> Any:
    """A mesh of actors, one a proc."""
    return await _ready(procs.spawn(name, cls, *arguments))


async def stop(procs: Any) -> None:
    """Ends the procs and their actors."""
    await procs.stop()


async def _ready(mesh: Any) -> Any:
    """Monarch gives a mesh that is not there yet, the others an awaitable of one that is."""
    if SIDE == "monarch":
        await mesh.initialized
        return mesh
    return await mesh if inspect.isawaitable(mesh) else mesh


def in_thread(work: Any, *arguments: Any) -> Any:
    """An awaitable of what a blocking function returns: for calls that end with `.get()`."""
    return asyncio.to_thread(work, *arguments)
