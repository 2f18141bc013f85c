"""`milkweed profile RUN`: where the time of its ranks goes."""

from __future__ import annotations

import argparse

from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN", help="a run, or a mesh for its newest run")
    parser.add_argument("--ranks", help='such as "0-3,7"')
    parser.add_argument("--seconds", type=float, help="how long to sample, 1 to 30 (default: 5)")
    parser.add_argument("--native", action="store_true", help="C and C++ frames too")
    parser.add_argument("--torch", action="store_true", help="torch's operations too")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        answer = await session.tool(
            "profile_run",
            run=arguments.target,
            ranks=arguments.ranks,
            seconds=arguments.seconds,
            native=arguments.native,
            torch=arguments.torch,
        )
        print_answer(answer, arguments.output)
        return 0

    return run_session(work, toolsets="debug")
