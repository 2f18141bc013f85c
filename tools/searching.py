"""Lines of a run's output that match, however long the output: read in pieces, within bounds of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio

from .reading import Page, text_of, whole_lines
from .registry import Call
from .verdicts import fold, grep
from .words import size_in_words

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["search_output"]

_PIECE_BYTES = 1 << 20
_SEARCH_S = 20.0


async def search_output(
    call: Call,
    mesh: Mesh,
    run: str,
    ranks: tuple[int, ...],
    offsets: Mapping[int, int],
    pattern: str,
    tail: int | None,
    max_bytes: int,
) -> Page:
    """The matching lines from `offsets` on (default 0); with `tail`, the last so many of each rank.

    Without `tail` it stops where it has found enough to fill `max_bytes`, and in any case after 20 s. The
    offsets of the page go on from there.

    Raises:
        InvalidArgument: the pattern is wrong.
    """
    at = {rank: offsets.get(rank, 0) for rank in ranks}
    open_ranks = set(ranks)
    found: dict[int, deque[str]] = {rank: deque(maxlen=tail) for rank in ranks}
    stop_at = anyio.current_time() + _SEARCH_S
    searched = 0
    while open_ranks and anyio.current_time() < stop_at:
        slices = await mesh.read_output(
            run,
            ranks=tuple(sorted(open_ranks)),
            offsets=at,
            tail_bytes=None,
            max_bytes=max(4096, _PIECE_BYTES // len(open_ranks)),
        )
        before = searched
        for piece in map(whole_lines, slices):
            found[piece.rank].extend(grep(text_of(piece, at[piece.rank]), pattern).splitlines())
            searched += len(piece.data)
            if piece.next >= piece.size:
                open_ranks.discard(piece.rank)
            at[piece.rank] = piece.next
        enough = tail is None and any(sum(map(len, lines)) >= max_bytes for lines in found.values())
        if enough or searched == before:
            break
        await call.report(float(searched), None, f"searched {size_in_words(searched)}")
    texts = {rank: "\n".join(lines) for rank, lines in found.items()}
    text = (
        ""
        if not any(texts.values())
        else fold(texts, max_bytes=max_bytes, hint="narrow grep, or choose ranks", silence="no line matches")
    )
    return Page(text, at, more=bool(open_ranks))
