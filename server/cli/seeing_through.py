"""A run of this command's own: followed to its end, told, and ended where we are interrupted."""

from __future__ import annotations

import sys

import anyio

from ...tools.results import RunResult
from .following import follow
from .printing import print_answer
from .session import Session

__all__ = ["see_through"]


async def see_through(session: Session, started: RunResult, output: str) -> int:
    """Prints what the run writes and its outcome (as JSON: the outcome alone); the command's exit code."""
    try:
        if output == "text":
            await follow(await session.meshes.get(started.mesh), started.run)
        outcome = await _end(session, started.run)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await session.tool("cancel_run", run=started.run)
        raise
    if output == "json":
        print_answer(outcome, "json")
    else:
        # What ranks wrote has been shown as it came.
        print(outcome.model_copy(update={"output_tail": ""}).summary(), file=sys.stderr)
    return 0 if outcome.state == "succeeded" else 1


async def _end(session: Session, run_id: str) -> RunResult:
    while True:
        outcome = await session.tool("wait_for_run", run=run_id, timeout_s=40)
        assert isinstance(outcome, RunResult)
        if outcome.state not in ("queued", "running"):
            return outcome
