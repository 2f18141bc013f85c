"""Named dimensions and rank selections, as pure functions.

A mesh of `hosts` x `gpus` numbers its ranks row by row: rank = host * gpus + gpu.

    >>> extent = Extent(hosts=2, gpus=4)
    >>> parse_selection("hosts=1,gpus=0-1", extent)
    (4, 5)
    >>> format_ranks([0, 1, 2, 3, 7])
    '0-3,7'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .errors import InvalidArgument, NotFound

__all__ = ["Extent", "format_ranks", "parse_ranges", "parse_selection"]

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NAMED = re.compile(r"([a-z]+)=")
_SYNTAX = 'Write ranks as "0-3,7" or by dimension as "hosts=0,gpus=0-3".'
_QUOTED = 60
_DIGITS = 18
_HOST_SYNTAX = 'Write hosts as "0-3,7".'


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes of a mesh's dimensions."""

    hosts: int
    gpus: int

    @property
    def size(self) -> int:
        return self.hosts * self.gpus

    def host_of(self, rank: int) -> int:
        return rank // self.gpus

    def local_rank(self, rank: int) -> int:
        return rank % self.gpus


def parse_ranges(text: str, size: int, what: str = "rank") -> tuple[int, ...]:
    """Reads `"0-3,7"` as sorted numbers below `size`.

    Raises:
        InvalidArgument: not of that form. NotFound: rank_not_found, host_not_found: outside the size.
    """
    chosen: set[int] = set()
    syntax = _HOST_SYNTAX if what == "host" else _SYNTAX
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            quoted = part.strip()[:_QUOTED]
            raise InvalidArgument("invalid_argument", f"cannot read {quoted!r} as {what}s", syntax)
        first, last = _number(match[1], what, size), _number(match[2] or match[1], what, size)
        if first > last:
            quoted = part.strip()[:_QUOTED]
            raise InvalidArgument("invalid_argument", f"the range {quoted} runs backwards", syntax)
        if last >= size:
            raise _no_such(what, str(last), size)
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def _number(digits: str, what: str, size: int) -> int:
    significant = digits.lstrip("0") or "0"
    if len(significant) > _DIGITS:
        raise _no_such(what, f"{significant[:_DIGITS]}...", size)
    return int(significant)


def _no_such(what: str, number: str, size: int) -> NotFound:
    known = "only 0" if size == 1 else f"0-{size - 1}"
    syntax = _HOST_SYNTAX if what == "host" else _SYNTAX
    return NotFound(f"{what}_not_found", f"no {what} {number}; {what}s are {known}", syntax)


def parse_selection(text: str | None, extent: Extent) -> tuple[int, ...]:
    """Ranks that a selection names, sorted; None, empty and "all" name every rank.

    Raises:
        InvalidArgument: the text is not a selection. NotFound: it names what the mesh does not have.
    """
    if text is None or text.strip() in ("", "all"):
        return tuple(range(extent.size))
    if "=" not in text:
        return parse_ranges(text, extent.size)
    chosen = {"hosts": tuple(range(extent.hosts)), "gpus": tuple(range(extent.gpus))}
    sizes = {"hosts": extent.hosts, "gpus": extent.gpus}
    words = _NAMED.split(text.replace(" ", ""))
    if words[0]:
        quoted = words[0][:_QUOTED]
        raise InvalidArgument("invalid_argument", f"cannot read {quoted!r} before a dimension", _SYNTAX)
    names = words[1::2]
    for name, ranges in zip(names, words[2::2], strict=True):
        if name not in sizes:
            raise InvalidArgument(
                "invalid_argument", f"no dimension {name[:_QUOTED]!r}; dimensions are hosts, gpus", _SYNTAX
            )
        if names.count(name) > 1:
            raise InvalidArgument(
                "invalid_argument",
                f"the dimension {name} is named twice",
                f'Name it once, with all its numbers: "{name}=0,2-3".',
            )
        chosen[name] = parse_ranges(ranges.rstrip(","), sizes[name], name.removesuffix("s"))
    return tuple(host * extent.gpus + gpu for host in chosen["hosts"] for gpu in chosen["gpus"])


def format_ranks(ranks: Iterable[int]) -> str:
    """The shortest text for a set of ranks, as results show it: `"0-3,7"`; empty for none."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
