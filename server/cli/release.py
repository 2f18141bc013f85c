"""`milkweed release MESH`: gives hosts back."""

from __future__ import annotations

import argparse

from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mesh", nargs="+", help="mesh ids or names")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        for mesh in arguments.mesh:
            print_answer(await session.tool("release_mesh", mesh=mesh), arguments.output)
        return 0

    return run_session(work, toolsets="mesh")
