"""Unified diffs of texts: made, and applied exactly. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

__all__ = ["apply_diff", "make_diff"]

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_END = "\\ No newline at end of file"


def make_diff(before: str, after: str, name: str) -> str:
    """As `diff -u` writes it; empty where both are the same."""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), f"a/{name}", f"b/{name}", n=3, lineterm="\n"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_END}\n" for line in lines)


def apply_diff(text: str, diff: str) -> str:
    """
    Raises:
        ValueError: the text is not what the diff was made of; it names the line.
    """
    old = _lines(text)
    new: list[str] = []
    at = 0
    for start, removed, added in _hunks(diff):
        if start < at or start > len(old):
            raise ValueError(f"there is no line {start + 1}")
        new += old[at:start]
        found = old[start : start + len(removed)]
        if found != removed:
            number = next(n for n, (one, two) in enumerate(_zipped(found, removed)) if one != two)
            raise ValueError(f"line {start + number + 1} is not {removed[number].rstrip()[:100]!r}")
        new += added
        at = start + len(removed)
    return "".join(new + old[at:])


def _zipped(one: list[str], other: list[str]) -> Iterator[tuple[str | None, str]]:
    yield from zip([*one, *[None] * (len(other) - len(one))], other, strict=False)


def _hunks(diff: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """Where each begins, from 0; the lines that it takes away, and those in their place."""
    start = 0
    removed: list[str] = []
    added: list[str] = []
    inside = False
    last: list[list[str]] = []
    for line in _lines(diff):
        if head := _HUNK.match(line):
            if inside:
                yield start, removed, added
            inside, removed, added = True, [], []
            # A hunk that takes no line away counts from the line after which it adds.
            start = int(head[1]) - (0 if head[2] == "0" else 1)
        elif not inside:
            continue
        elif line.startswith(_NO_END):
            for lines in last:
                lines[-1] = lines[-1].removesuffix("\n")
        else:
            last = {" ": [removed, added], "-": [removed], "+": [added], "\n": [removed, added]}.get(line[0], [])
            for lines in last:
                lines.append(line[1:] if line[0] != "\n" else line)
    if inside:
        yield start, removed, added


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: a form feed or a lone carriage return is part of a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
