"""`milkweed run -- COMMAND`: allocates a mesh, runs the command, follows its output, gives the mesh back."""

from __future__ import annotations

import argparse
import os
import sys

import anyio

from ...tools.results import MeshResult, RunResult
from .seeing_through import see_through
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--mesh", help="use this mesh, and keep it")
    where.add_argument("--hosts", type=int, default=1, help="hosts of a new mesh (default 1)")
    parser.add_argument("--procs", type=int, default=1, help="ranks a host of a new mesh (default 1)")
    parser.add_argument("--scheduler", default="local")
    parser.add_argument("--workspace", help="directory that hosts see (default: this one)")
    parser.add_argument("--launcher", choices=("spmd", "torchrun", "per_host", "single"), default="spmd")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end the run after it")
    parser.add_argument("--keep", action="store_true", help="do not give the new mesh back")
    add_output_argument(parser)
    parser.usage = "%(prog)s [options] -- COMMAND [ARG ...]"
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="program and arguments")


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        mesh = arguments.mesh or await _allocate(session, arguments)
        try:
            return await _run(session, mesh, arguments)
        finally:
            if not arguments.mesh and not arguments.keep:
                with anyio.CancelScope(shield=True):
                    await session.tool("release_mesh", mesh=mesh)

    return run_session(work, toolsets="mesh,run")


async def _allocate(session: Session, arguments: argparse.Namespace) -> str:
    result = await session.tool(
        "allocate_mesh",
        name=f"cli-{os.getpid()}",
        hosts=arguments.hosts,
        procs_per_host=arguments.procs,
        scheduler=arguments.scheduler,
        workspace=arguments.workspace,
    )
    assert isinstance(result, MeshResult)
    print(result.summary(), file=sys.stderr)
    return result.mesh


async def _run(session: Session, mesh: str, arguments: argparse.Namespace) -> int:
    started = await session.tool(
        "run_on_mesh",
        mesh=mesh,
        command=arguments.command,
        launcher=arguments.launcher,
        timeout_s=arguments.timeout,
        wait_s=0,
    )
    assert isinstance(started, RunResult)
    return await see_through(session, started, arguments.output)
