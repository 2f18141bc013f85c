"""Runs a plan: the sides by turns, in another order each round; one that fails costs no other its figures."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from .contestant import Contestant, Unusable, environment_note, open_contestant
from .figures import Figure
from .plan import Plan, Side, module_of

__all__ = ["compare", "measure", "turn"]


async def measure(line: str, *, quick: bool, sides: tuple[Side, ...]) -> AsyncIterator[Figure]:
    """The figures of a line, plan by plan; only the named sides take part."""
    for plan in importlib.import_module(module_of(line)).plans(quick=quick):
        for figure in await compare(line, plan, tuple(side for side in plan.sides if side in sides)):
            yield figure


async def compare(line: str, plan: Plan, sides: tuple[Side, ...]) -> list[Figure]:
    samples: dict[Side, dict[str, list[float]]] = {side: {} for side in sides}
    failed: dict[Side, str] = {}
    said: dict[str, None] = {}
    stacks: dict[Side, AsyncExitStack] = {}
    open_ones: dict[Side, Contestant] = {}
    for side in sides:
        stack = AsyncExitStack()
        try:
            open_ones[side] = await stack.enter_async_context(open_contestant(side, line, plan))
            stacks[side] = stack
        except Unusable as why:
            failed[side] = _failed(side, why)
    for number in range(plan.rounds):
        for side in turn(tuple(open_ones), number):
            try:
                figures = await open_ones[side].ask("sample", plan.timeout_s)
            except Unusable as why:
                failed[side] = _failed(side, why)
                await _end(stacks.pop(side))
                del open_ones[side]
                continue
            for metric, value in figures.items():
                if isinstance(value, str):
                    said.setdefault(f"{side}: {value}")
                else:
                    samples[side].setdefault(metric, []).append(value)
    notes = [plan.note, *said, *(f"{side}: {environment_note(env)}" for side, env in plan.env.items())]
    for side, contestant in open_ones.items():
        try:
            await stacks[side].aclose()
        except Unusable as why:
            notes.append(f"{side} did not end cleanly: {_failed(side, why)}")
            continue
        if contestant.left:
            notes.append(f"{side} left {contestant.left} processes behind")
    note = "; ".join(filter(None, notes))
    return [
        Figure(line, row, {side: found.get(row.metric, []) for side, found in samples.items()}, failed, note)
        for row in plan.rows
    ]


def turn(sides: tuple[Side, ...], number: int) -> tuple[Side, ...]:
    if not sides:
        return ()
    first = number % len(sides)
    return (*sides[first:], *sides[:first])


async def _end(stack: AsyncExitStack) -> None:
    try:
        async with asyncio.timeout(60):
            await stack.aclose()
    except Unusable:
        pass


def _failed(side: Side, why: Unusable) -> str:
    print(f"  {side}: {why}", file=sys.stderr, flush=True)
    return str(why).partition("\n")[0]
