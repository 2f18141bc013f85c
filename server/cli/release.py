"""`milkweed release MESH`: gives hosts back."""

from __future__ import annotations

import argparse
import sys

from ...tools.results import ReleaseResult
from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]

_TRIES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mesh", nargs="+", help="mesh ids or names")
    parser.add_argument(
        "--yes", action="store_true", help="also where checkpoints or more than 1 GB of files would be lost"
    )
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        released = [await _release(session, mesh, arguments) for mesh in arguments.mesh]
        return 0 if all(released) else 1

    return run_session(work, toolsets="mesh")


async def _release(session: Session, mesh: str, arguments: argparse.Namespace) -> bool:
    """Whether it is released now, or about to be."""
    answer = await session.tool("release_mesh", mesh=mesh)
    assert isinstance(answer, ReleaseResult)
    tries = 0
    while answer.state == "not_released" and tries < _TRIES and (arguments.yes or _agreed(answer)):
        tries += 1  # a run may write a checkpoint between the two calls
        answer = await session.tool("release_mesh", mesh=mesh, confirm=answer.confirm)
        assert isinstance(answer, ReleaseResult)
    print_answer(answer, arguments.output)
    return answer.state != "not_released"


def _agreed(answer: ReleaseResult) -> bool:
    """Asks the person, where there is one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{answer.mesh}: {answer.reason}:", *answer.would_lose, sep="\n  ", file=sys.stderr)
    print("Release it all the same? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
