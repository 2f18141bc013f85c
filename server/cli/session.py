"""What the commands share: the meshes, a tool called as an agent calls it, and errors as exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from ...runtime.client import Meshes, open_meshes
from ...runtime.errors import InvalidArgument, MilkweedError
from ...tools.registry import Answer, Call, Registry

__all__ = ["Session", "add_output_argument", "run_session"]


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print the result"
    )


class Session:
    """Open meshes and the tools on them."""

    def __init__(self, meshes: Meshes, registry: Registry) -> None:
        self.meshes = meshes
        self.registry = registry

    async def tool(self, tool: str, /, **arguments: Any) -> Answer:
        """Calls a tool with the same checks as over MCP; None stands for "not given"."""
        given = {key: value for key, value in arguments.items() if value is not None}
        async with _reporting() as report:
            return await self.registry.find(tool)(Call(self.meshes, report, f"uid:{os.getuid()}"), given)


def run_session(work: Callable[[Session], Awaitable[int]], *, toolsets: str = "all") -> int:
    """Runs `work` with open meshes; an error of ours goes to stderr, exit code 1 (2: wrong arguments)."""

    async def body() -> int:
        registry = Registry.load(toolsets)
        async with open_meshes() as meshes:
            return await work(Session(meshes, registry))

    try:
        return anyio.run(body)
    except MilkweedError as error:
        return _tell(error)
    except BaseExceptionGroup as group:
        mine, others = group.split(MilkweedError)
        if others is None and mine is not None:
            return _tell(_first(mine))
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        if group.subgroup(BrokenPipeError) is not None:
            raise BrokenPipeError from None
        raise


def _first(group: BaseExceptionGroup[MilkweedError]) -> MilkweedError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, MilkweedError)
    return error


def _tell(error: MilkweedError) -> int:
    print(error, file=sys.stderr)
    return 2 if isinstance(error, InvalidArgument) else 1


@asynccontextmanager
async def _reporting() -> AsyncIterator[Callable[[float, float | None, str], Awaitable[None]]]:
    """What a tool reports, as a line on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():

        async def silent(_: float, __: float | None, ___: str) -> None:
            return None

        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task("", total=None)

    async def shown(done: float, total: float | None, message: str) -> None:
        share = f" {100 * done / total:.0f} %" if total else ""
        bar.update(task, description=f"{message}{share}")
        bar.start()

    try:
        yield shown
    finally:
        bar.stop()
