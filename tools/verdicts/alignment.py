"""Texts of several ranks laid side by side, line by line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["NUMBER", "Row", "align", "is_important"]

NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?:(?<![\w.)\]])[-+])?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_MEASURED = re.compile(r"0x[0-9a-fA-F]+|(?:(?<![\w.)\]])[-+])?\d+(?:\.\d+(?:[eE][-+]?\d+)?|[eE][-+]?\d+)")
_WORRYING = re.compile(
    r"(?<![a-z])[+-]?(?:nan|inf|infinity)(?![a-z])"
    r"|traceback|error|exception|warn|fatal|abort|killed|fail|panic|assert|signal|segfault|oom|out of memory"
)
# Visits of a row above which aligning is given up: about a second.
_MAX_WORK = 500_000


@dataclass(frozen=True, slots=True)
class _Line:
    """One line and what it is compared by: `close` with NUL for measured numbers, `loose` for all.

    Both are the line itself where it may tell of trouble, so that no such line stands for another.
    """

    text: str
    close: str
    loose: str


@dataclass(slots=True)
class Row:
    """One line of the common reading; `texts` has the line of each text that has it, by its index."""

    line: _Line
    texts: dict[int, str] = field(default_factory=dict)


def is_important(text: str) -> bool:
    """Whether a line may tell of trouble: an error, a warning, a NaN."""
    return _WORRYING.search(text.lower()) is not None


def _parse_lines(text: str) -> list[_Line]:
    """The lines of a text with what they are compared by."""
    exact = text.split("\n")
    close = _MEASURED.sub("\0", text).split("\n")
    loose = NUMBER.sub("\0", text).split("\n")
    worries = _WORRYING.search(text.lower()) is not None
    return [
        _Line(line, line, line) if worries and is_important(line) else _Line(line, near, far)
        for line, near, far in zip(exact, close, loose, strict=True)
    ]


def align(texts: Sequence[str]) -> list[Row] | None:
    """One reading of all texts in which the lines of each keep their order, and lines alike share a row.

    None when the texts have so little in common that aligning them is not worth its time.
    """
    rows: list[Row] = []
    work = 0
    for index, text in enumerate(texts):
        work += len(rows) + text.count("\n") + 1
        if work > _MAX_WORK:
            return None
        rows = _merge(rows, index, _parse_lines(text))
    return rows


def _merge(rows: list[Row], index: int, lines: Sequence[_Line]) -> list[Row]:
    if not rows:
        return [Row(line, {index: line.text}) for line in lines]
    merged: list[Row] = []
    row_at = line_at = 0
    for row, line in (*_pairs(rows, lines), (len(rows), len(lines))):
        merged += rows[row_at:row]
        merged += (Row(own, {index: own.text}) for own in lines[line_at:line])
        if row < len(rows):
            rows[row].texts[index] = lines[line].text
            merged.append(rows[row])
        row_at, line_at = row + 1, line + 1
    return merged


def _pairs(rows: Sequence[Row], lines: Sequence[_Line]) -> Iterator[tuple[int, int]]:
    """Which row each line joins, rising in both: first the close ones, between them the loose ones."""
    close = _common([row.line.close for row in rows], [line.close for line in lines])
    row_at = line_at = 0
    for row, line in (*close, (len(rows), len(lines))):
        if row > row_at and line > line_at:
            between = _common(
                [between.line.loose for between in rows[row_at:row]],
                [between.loose for between in lines[line_at:line]],
            )
            yield from ((row_at + left, line_at + right) for left, right in between)
        if row < len(rows):
            yield row, line
        row_at, line_at = row + 1, line + 1


def _common(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """A long common subsequence as pairs of positions, in O(n log n).

    The n-th occurrence of an item is matched with the n-th on the other side; of those matches the longest
    rising chain is kept.
    """
    if left == right:
        return [(at, at) for at in range(len(left))]
    positions = {key: at for at, key in enumerate(_numbered(left))}
    matches = [(positions[key], at) for at, key in enumerate(_numbered(right)) if key in positions]
    return _longest_rising(matches)


def _numbered(items: Sequence[str]) -> Iterator[Hashable]:
    seen: dict[str, int] = {}
    for item in items:
        count = seen.get(item, 0)
        seen[item] = count + 1
        yield item, count


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain that rises in the first number; the second rises already."""
    ends: list[int] = []
    holders: list[int] = []
    before: list[int] = []
    for at, (value, _) in enumerate(pairs):
        length = bisect_left(ends, value)
        before.append(holders[length - 1] if length else -1)
        ends[length : length + 1] = [value]
        holders[length : length + 1] = [at]
    chain: list[tuple[int, int]] = []
    at = holders[-1] if holders else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]
