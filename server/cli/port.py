"""`milkweed port PATH`: a CUDA program on AMD devices."""

from __future__ import annotations

import argparse

from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="folder with the program")
    parser.add_argument("--write", action="store_true", help="write what is translated, beside the originals")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        answer = await session.tool("port_to_rocm", path=arguments.path, dry_run=not arguments.write)
        print_answer(answer, arguments.output)
        return 0

    return run_session(work, toolsets="amd")
