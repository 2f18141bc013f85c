"""`milkweed stacks RUN`: where its ranks are."""

from __future__ import annotations

import argparse

from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN", help="a run, or a mesh for its newest run")
    parser.add_argument("--ranks", help='such as "0-3,7"')
    parser.add_argument("--native", action="store_true", help="C and C++ frames too")
    parser.add_argument("--locals", action="store_true", help="local variables too")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        answer = await session.tool(
            "stack_dump",
            target=arguments.target,
            ranks=arguments.ranks,
            native=arguments.native,
            locals=arguments.locals,
        )
        print_answer(answer, arguments.output)
        return 0

    return run_session(work, toolsets="debug")
