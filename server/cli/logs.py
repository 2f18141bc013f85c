"""`milkweed logs RUN`: output of a run, folded across its ranks."""

from __future__ import annotations

import argparse

from .following import follow
from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    parser.add_argument("--ranks", help='such as "0-3,7"')
    parser.add_argument("--grep", help="only lines that this regular expression matches")
    parser.add_argument("--tail", type=int, help="last lines of each rank")
    parser.add_argument("--cursor", help='where to read on; "start" is the beginning')
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        if arguments.follow:
            view = await follow(
                await session.meshes.find_run(arguments.target), arguments.target, arguments.ranks
            )
            return 0 if view.state == "succeeded" else 1
        answer = await session.tool(
            "read_run_output",
            run=arguments.target,
            ranks=arguments.ranks,
            grep=arguments.grep,
            tail=arguments.tail,
            cursor=arguments.cursor,
            max_bytes=65_536,
        )
        print_answer(answer, arguments.output)
        return 0

    return run_session(work, toolsets="run")
