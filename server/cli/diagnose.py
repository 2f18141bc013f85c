"""`milkweed diagnose RUN`: why it failed, hangs or is slow."""

from __future__ import annotations

import argparse

from ...tools.diagnosis import DiagnosisResult
from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN", help="a run, or a mesh for its newest run")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        answer = await session.tool("diagnose_run", run=arguments.target)
        if arguments.output == "json":
            print_answer(answer, "json")
        else:
            assert isinstance(answer, DiagnosisResult)
            print(answer.summary())
        return 0

    return run_session(work, toolsets="debug")
