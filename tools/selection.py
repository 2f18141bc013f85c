"""Which hosts, and which ranks of a run a call means, and where it reads on: pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..runtime.errors import InvalidArgument, NotFound
from ..runtime.mesh import Extent, format_ranks, parse_ranges, parse_selection
from ..runtime.records import RunView

__all__ = ["format_cursor", "parse_cursor", "select_hosts", "select_ranks"]

CURSOR_MAX = 800
_GROUP = re.compile(r"([0-9,-]+)@(\d{1,18})")
_CURSOR_STEP = "Pass it as read_run_output gave it, or leave it out for the end of the output."


def select_ranks(text: str | None, view: RunView) -> tuple[int, ...]:
    """Ranks of a run that a selection names: by their number, or by the hosts and gpus they are on.

    Raises:
        InvalidArgument: no selection, or one of ranks that the run does not have.
    """
    known = {rank.rank: rank.host for rank in view.ranks}
    if text is None or text.strip() in ("", "all") or not known:
        return tuple(sorted(known))
    if "=" not in text:
        return _only_known(parse_ranges(text, max(known) + 1), known)
    places: dict[int, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for rank in sorted(known):
        host = known[rank]
        places[rank] = (host, filled.get(host, 0))
        filled[host] = filled.get(host, 0) + 1
    extent = Extent(hosts=max(known.values()) + 1, gpus=max(filled.values()))
    chosen = set(parse_selection(text, extent))
    found = tuple(rank for rank, (host, gpu) in places.items() if host * extent.gpus + gpu in chosen)
    if not found:
        raise NotFound(
            "rank_not_found",
            f"{text[:60]!r} selects no rank of {view.run}",
            f"It has ranks {format_ranks(known)}.",
        )
    return found


def select_hosts(text: str | None, count: int) -> tuple[int, ...]:
    """Hosts that a selection names among so many, sorted.

    Raises:
        InvalidArgument: no selection. NotFound: host_not_found.
    """
    if text is None or text.strip() in ("", "all"):
        return tuple(range(count))
    return parse_ranges(text.strip().removeprefix("hosts="), count, "host")


def format_cursor(offsets: Mapping[int, int]) -> str:
    """Where each rank's output goes on, ranks with equal offsets together: `0-2@1024;3@990`.

    Empty where that would be too long to hand around: hundreds of ranks, each at another place.
    """
    ranks_at: dict[int, list[int]] = {}
    for rank in sorted(offsets):
        ranks_at.setdefault(offsets[rank], []).append(rank)
    cursor = ";".join(f"{format_ranks(ranks)}@{offset}" for offset, ranks in ranks_at.items())
    return cursor if len(cursor) <= CURSOR_MAX else ""


def parse_cursor(text: str, ranks: Iterable[int]) -> dict[int, int]:
    """Offsets of a cursor by rank.

    Raises:
        InvalidArgument: no cursor of this run.
    """
    known = set(ranks)
    offsets: dict[int, int] = {}
    for part in text.strip().split(";"):
        match = _GROUP.fullmatch(part.strip())
        if match is None:
            raise InvalidArgument(
                "invalid_argument",
                f"cursor {text[:80]!r} is none; one looks like '0-2@1024;3@990'",
                _CURSOR_STEP,
            )
        for rank in _only_known(parse_ranges(match[1], max(known, default=0) + 1), known):
            if rank in offsets:
                raise InvalidArgument(
                    "invalid_argument", f"cursor {text[:80]!r} names rank {rank} twice", _CURSOR_STEP
                )
            offsets[rank] = int(match[2])
    return offsets


def _only_known(chosen: tuple[int, ...], known: Iterable[int]) -> tuple[int, ...]:
    missing = [rank for rank in chosen if rank not in set(known)]
    if missing:
        raise NotFound(
            "rank_not_found", f"no rank {missing[0]} in this run", f"It has ranks {format_ranks(known)}."
        )
    return chosen
