"""Rank selections as texts: what they name, and how results name ranks. Pure.

>>> extent = Extent(hosts=2, gpus=4)
>>> parse_selection("hosts=1,gpus=0-1", extent)
(4, 5)
>>> format_ranks([0, 1, 2, 3, 7])
'0-3,7'
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from .errors import InvalidArgument
from .extent import Extent, no_dimension, no_such, plural

__all__ = ["Extent", "format_ranks", "parse_ranges", "parse_selection"]

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
# Matches at the start of a word only, so that a long word is read once.
_NAMED = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)=")
_SYNTAX = 'Write ranks as "0-3,7" or by dimension as "hosts=0,gpus=0-3".'
_QUOTED = 60
_DIGITS = 18
_HOST_SYNTAX = 'Write hosts as "0-3,7".'


def parse_ranges(text: str, size: int, what: str = "rank") -> tuple[int, ...]:
    """Reads `"0-3,7"` as sorted numbers below `size`.

    Raises:
        InvalidArgument: not of that form. NotFound: rank_not_found, host_not_found: outside the size.
    """
    return _read_ranges(text, size, what, _HOST_SYNTAX if what == "host" else _SYNTAX)


def _read_ranges(text: str, size: int, what: str, syntax: str) -> tuple[int, ...]:
    chosen: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        quoted = part.strip()[:_QUOTED]
        if match is None:
            raise InvalidArgument("invalid_argument", f"cannot read {quoted!r} as {plural(what)}", syntax)
        first, last = (_number(digits, what, size, syntax) for digits in (match[1], match[2] or match[1]))
        if first > last:
            raise InvalidArgument("invalid_argument", f"the range {quoted} runs backwards", syntax)
        if last >= size:
            raise no_such(what, str(last), size, syntax)
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def _number(digits: str, what: str, size: int, syntax: str) -> int:
    significant = digits.lstrip("0") or "0"
    if len(significant) > _DIGITS:
        raise no_such(what, f"{significant[:_DIGITS]}...", size, syntax)
    return int(significant)


def _syntax(extent: Extent) -> str:
    """How a selection of this extent is written."""
    if not extent.labels or extent.labels == ("hosts", "gpus"):
        return _SYNTAX
    return f'Write ranks as "0-3,7" or by dimension as "{",".join(f"{label}=0" for label in extent.labels)}".'


def parse_selection(text: str | None, extent: Extent) -> tuple[int, ...]:
    """Ranks that a selection names, sorted; None, empty and "all" name every rank.

    Raises:
        InvalidArgument: the text is not a selection. NotFound: it names what the mesh does not have.
    """
    if text is None or text.strip() in ("", "all"):
        return tuple(range(extent.size))
    syntax = _syntax(extent)
    if "=" not in text:
        return _read_ranges(text, extent.size, "rank", syntax)
    chosen = {label: tuple(range(size)) for label, size in extent.sizes.items()}
    words = _NAMED.split(text.replace(" ", ""))
    if words[0]:
        quoted = words[0][:_QUOTED]
        raise InvalidArgument("invalid_argument", f"cannot read {quoted!r} before a dimension", syntax)
    names = words[1::2]
    for name, ranges in zip(names, words[2::2], strict=True):
        if name not in extent:
            raise no_dimension(name, extent, syntax)
        if names.count(name) > 1:
            raise InvalidArgument(
                "invalid_argument",
                f"the dimension {name} is named twice",
                f'Name it once, with all its numbers: "{name}=0,2-3".',
            )
        chosen[name] = _read_ranges(ranges.rstrip(","), extent[name], name, syntax)
    steps = zip(chosen.values(), extent.strides, strict=True)
    offsets = [[at * stride for at in members] for members, stride in steps]
    return tuple(sum(parts) for parts in itertools.product(*offsets))


def format_ranks(ranks: Iterable[int]) -> str:
    """The shortest text for a set of ranks, as results show it: `"0-3,7"`; empty for none."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
