"""`milkweed controller MESH SCRIPT`: runs a Python program that controls a mesh, follows its output."""

from __future__ import annotations

import argparse
import os

from ...tools.results import RunResult
from .seeing_through import see_through
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end the program after it")
    add_output_argument(parser)
    parser.usage = "%(prog)s [options] MESH SCRIPT [ARG ...]"
    parser.add_argument("mesh", metavar="MESH", help="id or name; it is kept")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file, in which attach() gives the hosts")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help="what the program gets")


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        started = await session.tool(
            "run_controller",
            mesh=arguments.mesh,
            command=[os.path.abspath(arguments.script), *arguments.arguments],
            timeout_s=arguments.timeout,
            wait_s=0,
        )
        assert isinstance(started, RunResult)
        return await see_through(session, started, arguments.output)

    return run_session(work, toolsets="mesh,run,program")
