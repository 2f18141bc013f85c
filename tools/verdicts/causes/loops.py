"""Where two ranks stand to each other in the user's code: inside one loop, or one behind it. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Literal

from ....runtime.records import Frame
from .case import RankCase

__all__ = ["Relation", "relate"]

_COMPREHENSION = re.compile(r"<(?:\w+comp|genexpr)>")
# `left`: the first has left what the second is still in; `is_left`: the other way round; `through`: it is
# through with an inner loop that the second is in, which may be in the next turn of the outer one;
# `together`: in the same loop or function body; `unknown`: their stacks have nothing in common that tells.
Span = tuple[int, int]
Relation = Literal["left", "is_left", "through", "together", "unknown"]


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
        is_through = _is_through(here.line, around_mine, around_theirs, text or "")
        return "through" if is_through else "together"
    if around_theirs and not around_mine and here.line > there.line:
        return "left"
    if around_mine and not around_theirs and there.line > here.line:
        return "is_left"
    if here.line > there.line and _may_loop(theirs[shared:], source):
        return "left"
    if there.line > here.line and _may_loop(mine[shared:], source):
        return "is_left"
    return "together" if text else "unknown"


def _is_through(line: int, around: Sequence[Span], others: Sequence[Span], text: str) -> bool:
    """Whether a rank at that line is behind a loop that the other is in, inside of one that both are in; and
    not in another branch, where it may never have been in that loop."""
    inner = [loop for loop in others if loop not in around]
    if not inner or any(loop not in others for loop in around) or line <= max(end for _, end in inner):
        return False
    start = min(first for first, _ in inner)
    return not any(first <= start <= last < line for first, last in _branches(text))


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
def _loops(text: str) -> tuple[Span, ...]:
    """First and last line of each loop's body, without its `else`."""
    return tuple(
        (node.lineno, max(last.end_lineno or last.lineno for last in node.body))
        for node in _nodes(text)
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor))
    )


@lru_cache(maxsize=32)
def _branches(text: str) -> tuple[Span, ...]:
    """First and last line of what is done under a condition."""
    return tuple(
        (part[0].lineno, max(last.end_lineno or last.lineno for last in part))
        for node in _nodes(text)
        if isinstance(node, ast.If | ast.Try | ast.Match)
        for part in _parts(node)
        if part
    )


def _parts(node: ast.If | ast.Try | ast.Match) -> list[list[ast.stmt]]:
    if isinstance(node, ast.If):
        return [node.body, node.orelse]
    if isinstance(node, ast.Try):
        return [handler.body for handler in node.handlers]
    return [case.body for case in node.cases]


def _nodes(text: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return
