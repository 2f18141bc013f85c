"""`milkweed check MESH`: whether its hosts are fit."""

from __future__ import annotations

import argparse

from ...tools.results import CheckResult
from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mesh", metavar="MESH")
    parser.add_argument("--hosts", help='such as "0-3,7"; default: all')
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        answer = await session.tool("check_mesh", mesh=arguments.mesh, hosts=arguments.hosts)
        print_answer(answer, arguments.output)
        return 0 if isinstance(answer, CheckResult) and answer.verdict == "ok" else 1

    return run_session(work, toolsets="mesh")
