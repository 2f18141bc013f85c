"""Regular expressions from a caller, searched line by line with bounded work.

Python's `re` can neither be stopped nor given a deadline, and it holds the interpreter lock. So what a
pattern can cost is bounded before it runs: repeats of what can itself match in several ways (exponential) are
refused, and what is left costs at most about `length ** (repeats + 1)` steps for a line, so lines longer than
a limit are searched one start at a time, with a look at the clock between.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import InvalidArgument

__all__ = ["LinePattern", "compile_pattern"]

_MAX_PATTERN = 1000
_MAX_LINE = 4096
_WIDE = 16
_MANY = 4096
_MAX_REPEATS = 3
# Lengths up to which one call of `re` stays near 20 million steps, by count of repeats.
_WHOLE_SEARCH = {0: _MAX_LINE, 1: _MAX_LINE, 2: 256, 3: 64}
_ONE_START = {0: _MAX_LINE, 1: _MAX_LINE, 2: _MAX_LINE, 3: 256}
_NEXT_STEP = "Search for plain words, or narrow by two calls."


class LinePattern:
    """A checked pattern; `search` looks at the first 4,096 characters of a line at most."""

    def __init__(self, text: str, compiled: re.Pattern[str], repeats: int) -> None:
        self.text = text
        self._compiled = compiled
        self._whole = _WHOLE_SEARCH[repeats]
        self._window = _ONE_START[repeats]

    def search(self, line: str, deadline: float | None = None) -> bool:
        """Whether the line has a match.

        Args:
            deadline: on `time.monotonic()`.

        Raises:
            InvalidArgument: the deadline passed, so the pattern is too slow for this text.
        """
        if deadline is not None and time.monotonic() > deadline:
            raise InvalidArgument(
                "invalid_argument", f"the pattern {self.text!r} is too slow here", _NEXT_STEP
            )
        if len(line) <= self._whole:
            return self._compiled.search(line) is not None
        length = min(len(line), _MAX_LINE)
        for start in range(length + 1):
            if self._compiled.match(line, start, min(length, start + self._window)) is not None:
                return True
            if deadline is not None and not start % 16 and time.monotonic() > deadline:
                raise InvalidArgument(
                    "invalid_argument", f"the pattern {self.text!r} is too slow here", _NEXT_STEP
                )
        return False


def compile_pattern(text: str) -> LinePattern:
    """Checks a regular expression (Python's syntax) and makes it ready for lines.

    Raises:
        InvalidArgument: not a regular expression, or one whose cost cannot be bounded.
    """
    if len(text) > _MAX_PATTERN:
        raise InvalidArgument(
            "invalid_argument", f"a pattern of {len(text)} characters; at most {_MAX_PATTERN}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(text)
            tree = re._parser.parse(text)  # type: ignore[attr-defined]  # noqa: SLF001
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            "invalid_argument",
            f"{text!r} is no regular expression: {error}",
            "Python's syntax; put a backslash before . * + ? ( ) [ ] to mean the character.",
        ) from error
    repeats = _cost(tree, text).repeats
    if repeats > _MAX_REPEATS:
        raise InvalidArgument(
            "invalid_argument",
            f"the pattern {text!r} has {repeats} open repeats (such as .*); at most {_MAX_REPEATS}",
            _NEXT_STEP,
        )
    return LinePattern(text, compiled, repeats)


@dataclass(frozen=True, slots=True)
class _Cost:
    """Open repeats in sequence, and in how many ways the rest can match one text (at most `_MANY`)."""

    repeats: int = 0
    ways: int = 1

    def then(self, other: _Cost) -> _Cost:
        return _Cost(self.repeats + other.repeats, min(_MANY, self.ways * other.ways))


def _cost(tree: Iterable[tuple[Any, Any]], pattern: str) -> _Cost:
    """What a parsed pattern can cost; refuses open repeats of what can itself match in several ways."""
    total = _Cost()
    for operator, argument in tree:
        total = total.then(_cost_of(str(operator), argument, pattern))
        if total.ways >= _MANY:
            raise _ambiguous(pattern)
    return total


def _cost_of(operator: str, argument: Any, pattern: str) -> _Cost:
    if operator in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, body = int(argument[0]), int(argument[1]), _cost(argument[2], pattern)
        if high - low <= _WIDE and high <= _MANY:
            ways = (high - low + 1) * body.ways ** min(high, _MANY.bit_length())
            return _Cost(body.repeats * high, min(_MANY, ways))
        if body != _Cost():
            raise _ambiguous(pattern)
        return _Cost(repeats=1)
    if operator in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP"):
        body = _cost(argument[2] if operator == "POSSESSIVE_REPEAT" else argument, pattern)
        return _Cost(body.repeats, 1)
    if operator == "BRANCH":
        branches = [_cost(branch, pattern) for branch in argument[1]]
        ways = max if _start_differently(argument[1]) else sum
        return _Cost(max(b.repeats for b in branches), min(_MANY, ways(b.ways for b in branches)))
    if operator == "GROUPREF":
        return _Cost(ways=2)
    total = _Cost()
    for part in _bodies(argument):
        total = total.then(_cost(part, pattern))
    return total


def _bodies(argument: Any) -> list[Any]:
    """Sub-patterns in the argument of a group, look-around or condition."""
    if hasattr(argument, "data"):
        return [argument]
    return [part for part in argument if hasattr(part, "data")] if isinstance(argument, tuple) else []


def _start_differently(branches: Iterable[Any]) -> bool:
    """Whether the first character tells the branches apart, so that a repeat of them cannot back up."""
    starts: list[int] = []
    for branch in branches:
        items = list(branch)
        if not items or str(items[0][0]) != "LITERAL":
            return False
        starts.append(items[0][1])
    return len(set(starts)) == len(starts)


def _ambiguous(pattern: str) -> InvalidArgument:
    return InvalidArgument(
        "invalid_argument",
        f"the pattern {pattern!r} can match one text in too many ways, which takes for ever",
        "Write (a+)+ as a+, or make the inner repeat possessive: (?:a++ )+.",
    )
