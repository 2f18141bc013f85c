"""Where two ranks stand to each other in the user's code: inside one loop, or one behind it. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from ....runtime.records import Frame
from .case import RankCase

__all__ = ["Relation", "relate"]

_COMPREHENSION = re.compile(r"<(?:\w+comp|genexpr)>")
# `left`: the first has left what the second is still in; `is_left`: the other way round; `together`: in the
# same loop or function body; `unknown`: their stacks have nothing in common that tells.
Relation = Literal["left", "is_left", "together", "unknown"]


def relate(one: RankCase, other: RankCase, source: Callable[[str], str | None]) -> Relation:
    """How the first rank stands to the second, by the innermost function of the user's that both are in."""
    mine = one.latest.user_frames[::-1]
    theirs = other.latest.user_frames[::-1]
    shared = 0
    while (
        shared < min(len(mine), len(theirs))
        and _same_function(mine[shared], theirs[shared])
        and (shared == 0 or mine[shared - 1].line == theirs[shared - 1].line)
    ):
        shared += 1
    if shared == 0:
        return "unknown"
    here, there = mine[shared - 1], theirs[shared - 1]
    if here.line == there.line:
        return "together"
    text = source(here.file)
    loops = _loops(text) if text else ()
    around_mine = [loop for loop in loops if loop[0] <= here.line <= loop[1]]
    around_theirs = [loop for loop in loops if loop[0] <= there.line <= loop[1]]
    if set(around_mine) & set(around_theirs):
        return "together"
    if around_theirs and not around_mine and here.line > there.line:
        return "left"
    if around_mine and not around_theirs and there.line > here.line:
        return "is_left"
    if here.line > there.line and _may_loop(theirs[shared:], source):
        return "left"
    if there.line > here.line and _may_loop(mine[shared:], source):
        return "is_left"
    return "together" if text else "unknown"


def _may_loop(deeper: Sequence[Frame], source: Callable[[str], str | None]) -> bool:
    """Whether one of these calls is in a loop of its function; a call that is in none is left every time."""
    for frame in deeper:
        text = source(frame.file)
        if text is None or _COMPREHENSION.fullmatch(frame.function.rsplit(".", 1)[-1]):
            return True
        if any(first <= frame.line <= last for first, last in _loops(text)):
            return True
    return False


def _same_function(one: Frame, other: Frame) -> bool:
    return one.file == other.file and one.function.rsplit(".", 1)[-1] == other.function.rsplit(".", 1)[-1]


@lru_cache(maxsize=32)
def _loops(text: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each loop's body, without its `else`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(
        (node.lineno, max(last.end_lineno or last.lineno for last in node.body))
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor))
    )
