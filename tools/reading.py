"""From slices of ranks' output to one text of bounded size: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..runtime.records import OutputSlice
from .verdicts import clean, fold, format_gap

__all__ = ["Page", "last_lines", "page_forward", "page_tail", "text_of", "whole_lines"]

_UNBOUNDED = 1 << 40
_LEAST_PER_RANK = 200


@dataclass(frozen=True, slots=True)
class Page:
    """A text, and where each rank's output goes on after it.

    `earlier`: bytes before it that are not in it; `more`: there is output after it already.
    """

    text: str
    offsets: Mapping[int, int]
    earlier: int = 0
    more: bool = False


def text_of(piece: OutputSlice, asked: int | None = None) -> str:
    """What a slice says: cleaned, with a line for what fell out of the capped output around it.

    Args:
        asked: the offset that was asked for; the slice begins later where that fell out.
    """
    gap = format_gap(piece.gap_start, piece.gap_end, piece.gap_lines)
    text = clean(piece.data)
    if asked is not None and asked < piece.start:
        return f"{gap}\n{text}"
    if piece.start + len(piece.data) < piece.next:
        return f"{text.removesuffix(chr(10))}\n{gap}\n"
    return text


def page_forward(slices: Sequence[OutputSlice], asked: Mapping[int, int], max_bytes: int, hint: str) -> Page:
    """As much from the beginning of the slices as fits, as many bytes of each rank; `asked`: from where."""
    return _page(slices, asked, max_bytes, hint, _head)[0]


def page_tail(slices: Sequence[OutputSlice], max_bytes: int, hint: str) -> Page:
    """As much from the end of the slices as fits."""
    page, pieces = _page(slices, {}, max_bytes, hint, _tail)
    return replace(page, earlier=sum(piece.start for piece in pieces))


def last_lines(slices: Iterable[OutputSlice], count: int) -> list[OutputSlice]:
    """The last `count` lines of each slice."""
    return [_tail_from(piece, _start_of_last(piece.data, count)) for piece in slices]


def whole_lines(piece: OutputSlice) -> OutputSlice:
    """A slice up to its last line's end, so that no line is looked at in two halves.

    A slice without a line's end, or at the end of the output, stays as it is.
    """
    if piece.ended and piece.next >= piece.size:
        return piece
    end = piece.data.rfind(b"\n") + 1
    return _head_to(piece, end) if end else piece


def _page(
    slices: Sequence[OutputSlice],
    asked: Mapping[int, int],
    max_bytes: int,
    hint: str,
    cut: Callable[[OutputSlice, int], OutputSlice],
) -> tuple[Page, Sequence[OutputSlice]]:
    limit = 2 * max_bytes
    while True:
        pieces = [cut(piece, limit) for piece in slices]
        texts = {piece.rank: text_of(piece, asked.get(piece.rank)) for piece in pieces}
        small = sum(len(piece.data) for piece in pieces) <= max_bytes or limit <= _LEAST_PER_RANK
        text = fold(texts, max_bytes=max_bytes if small else _UNBOUNDED, hint=hint)
        if small or len(text.encode()) <= max_bytes:
            more = any(piece.next < piece.size for piece in pieces)
            return Page(text, {piece.rank: piece.next for piece in pieces}, more=more), pieces
        limit = max(_LEAST_PER_RANK, limit // 2)


def _head(piece: OutputSlice, limit: int) -> OutputSlice:
    if len(piece.data) <= limit:
        return piece
    return _head_to(piece, piece.data.rfind(b"\n", 0, limit) + 1 or limit)


def _head_to(piece: OutputSlice, end: int) -> OutputSlice:
    if end == len(piece.data):
        return piece
    return replace(piece, data=piece.data[:end], next=piece.start + end)


def _tail(piece: OutputSlice, limit: int) -> OutputSlice:
    if len(piece.data) <= limit:
        return piece
    start = len(piece.data) - limit
    newline = piece.data.find(b"\n", start)
    return _tail_from(piece, start if newline in (-1, len(piece.data) - 1) else newline + 1)


def _tail_from(piece: OutputSlice, start: int) -> OutputSlice:
    return replace(piece, start=piece.start + start, data=piece.data[start:]) if start else piece


def _start_of_last(data: bytes, count: int) -> int:
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(count):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1
