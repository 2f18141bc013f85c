"""From slices of ranks' output to one text of bounded size: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

from ..runtime.records import OutputSlice
from .verdicts import clean, finished_end, fold, format_gap, name_ranks, part, without_host

__all__ = ["Page", "notes_on", "page_forward", "page_tail", "text_of", "whole_lines"]

_UNBOUNDED = 1 << 40
# Bytes of output on a page: of each of several ranks, and of one (a character has up to four).
_LEAST_PER_RANK = 200
_LEAST = 4
# Different texts of more than this are not laid side by side: it would take seconds.
_FOLDABLE = 1 << 20
# A page is full when a quarter more of each rank would not fit.
_CLOSE = 1.25


@dataclass(frozen=True, slots=True)
class Page:
    """A text, and where each rank's output goes on after it.

    `earlier`: bytes before it that are not in it; `more`: there is output after it already;
    `waiting`: ranks with output for which there was no room; `in_line`: a line goes on on the next page;
    `notes`: what happened to the outputs themselves.
    """

    text: str
    offsets: Mapping[int, int]
    earlier: int = 0
    more: bool = False
    waiting: tuple[int, ...] = ()
    in_line: bool = False
    notes: tuple[str, ...] = ()


def text_of(piece: OutputSlice, asked: int | None = None) -> str:
    """What a slice says: cleaned, alike on all hosts, and a line for what fell out around it.

    Args:
        asked: the offset that was asked for; the slice begins later where that fell out.
    """
    gap = format_gap(piece.gap_start, piece.gap_end, piece.gap_lines)
    text = without_host(clean(piece.data))
    if asked is not None and asked < piece.start:
        return f"{gap}\n{text}"
    if piece.start + len(piece.data) < piece.next:
        return f"{text.removesuffix(chr(10))}\n{gap}\n"
    return text


def page_forward(slices: Sequence[OutputSlice], asked: Mapping[int, int], max_bytes: int) -> Page:
    """As much from the beginning of the slices as fits, as many bytes of each rank; `asked`: from where.

    Every byte is on exactly one page (ranks that wrote the same share its one copy). A page ends with
    lines; a line longer than a page goes on in the next. Where not all ranks fit, those that were read least
    go first.
    """
    begin = {piece.rank: asked.get(piece.rank, piece.start) for piece in slices}
    waiting: list[OutputSlice] = []
    shown = [piece for piece in slices if piece.next != begin[piece.rank]]
    shown.sort(key=lambda piece: (begin[piece.rank], piece.rank))
    while (found := _fill(shown, asked, max_bytes, alone=len(slices) == 1)) is None:
        half = len(shown) // 2
        waiting = shown[half:] + waiting
        shown = shown[:half]
    text, pieces = found
    return Page(
        text,
        begin | {piece.rank: piece.next for piece in pieces},
        more=bool(waiting) or any(piece.next < piece.size for piece in pieces),
        waiting=tuple(sorted(piece.rank for piece in waiting)),
        notes=notes_on(slices),
        in_line=any(piece.next < piece.size and not piece.data.endswith(b"\n") for piece in pieces),
    )


def page_tail(slices: Sequence[OutputSlice], max_bytes: int, hint: str, *, lines: int | None = None) -> Page:
    """As much from the end of the slices as fits, of each at most the last `lines`; a cut line says so."""
    ends = [_last_lines(_whole_beginning(piece), lines) for piece in slices]
    limit = 2 * max_bytes
    while True:
        pieces = [_tail(piece, limit) for piece in ends]
        texts = {
            piece.rank: ("[... line cut ...] " if _is_cut(piece, whole) else "") + text_of(piece)
            for piece, whole in zip(pieces, slices, strict=True)
        }
        small = sum(len(piece.data) for piece in pieces) <= max_bytes or limit <= _LEAST_PER_RANK
        text = fold(texts, max_bytes=max_bytes if small else _UNBOUNDED, hint=hint)
        if small or len(text.encode()) <= max_bytes:
            offsets = {piece.rank: piece.next for piece in pieces}
            more = any(piece.next < piece.size for piece in pieces)
            earlier = sum(piece.start for piece in pieces)
            return Page(text, offsets, earlier=earlier, more=more, notes=notes_on(slices))
        limit = max(_LEAST_PER_RANK, limit // 2)


def notes_on(slices: Iterable[OutputSlice]) -> tuple[str, ...]:
    """What happened to the outputs themselves, with the ranks: one was removed, or emptied by its program."""
    ranks: dict[str, list[int]] = {}
    for piece in slices:
        if piece.note:
            ranks.setdefault(piece.note, []).append(piece.rank)
    return tuple(f"{name_ranks(members)}: {note}" for note, members in ranks.items())


def whole_lines(piece: OutputSlice) -> OutputSlice:
    """A slice up to its last line's end, so that no line is looked at in two halves.

    A slice without a line's end, or at the end of the output, stays as it is.
    """
    if piece.ended and piece.next >= piece.size:
        return piece
    end = piece.data.rfind(b"\n") + 1
    return _head_to(piece, end) if end else piece


def _fill(
    slices: Sequence[OutputSlice], asked: Mapping[int, int], max_bytes: int, *, alone: bool
) -> tuple[str, Sequence[OutputSlice]] | None:
    """The text of equal beginnings of all slices that fills the page, and those; None if there is no room."""

    def attempt(limit: int) -> tuple[str, Sequence[OutputSlice]] | None:
        pieces = [_head(piece, limit) for piece in slices]
        texts = ((piece.rank, text_of(piece, asked.get(piece.rank))) for piece in pieces)
        written = {rank: text for rank, text in texts if text}
        if len(pieces) > 1 and sum(map(len, set(written.values()))) > _FOLDABLE:
            return None
        text = fold(written, max_bytes=_UNBOUNDED, hint="")
        if len(written) == 1 and not alone:
            text = f"{name_ranks(list(written))}:\n{text}"
        return (text, pieces) if len(text.encode()) <= max_bytes else None

    over = max((len(piece.data) for piece in slices), default=0)
    if (whole := attempt(max(over, _LEAST))) is not None:
        return whole
    fitting = _LEAST if len(slices) == 1 else _LEAST_PER_RANK
    best = attempt(fitting)
    if best is None and len(slices) == 1:
        raise ValueError(f"{max_bytes} bytes are too few for a page")
    while best is not None and over > fitting + 1 and over > fitting * _CLOSE:
        middle = max(fitting + 1, isqrt(fitting * over))
        found = attempt(middle)
        if found is None:
            over = middle
        else:
            fitting, best = middle, found
    return best


def _head(piece: OutputSlice, limit: int) -> OutputSlice:
    if len(piece.data) > limit:
        return _head_to(piece, part(piece.data, limit))
    behind_is_gap = piece.start + len(piece.data) < piece.next
    at_end = piece.next >= piece.size
    if not piece.data or piece.data.endswith(b"\n") or behind_is_gap or (at_end and piece.ended):
        return piece
    if at_end or len(piece.data) < _LEAST:
        # What is not finished is not there yet.
        finished = _head_to(piece, finished_end(piece.data))
        return replace(finished, size=finished.next) if at_end else finished
    return _head_to(piece, part(piece.data, len(piece.data)))


def _head_to(piece: OutputSlice, end: int) -> OutputSlice:
    if end == len(piece.data):
        return piece
    return replace(piece, data=piece.data[:end], next=piece.start + end)


def _whole_beginning(piece: OutputSlice) -> OutputSlice:
    """A slice without the line that it begins inside of, if it has another."""
    if not _begins_in_line(piece):
        return piece
    newline = piece.data.find(b"\n")
    return piece if newline in (-1, len(piece.data) - 1) else _tail_from(piece, newline + 1)


def _begins_in_line(piece: OutputSlice) -> bool:
    """Whether what is before the slice may be of the same line."""
    return piece.start > 0 and piece.start != piece.gap_end


def _is_cut(piece: OutputSlice, whole: OutputSlice) -> bool:
    """Whether the end of a slice begins inside a line."""
    skipped = piece.start - whole.start
    if not piece.data:
        return False
    return whole.data[skipped - 1 : skipped] != b"\n" if skipped else _begins_in_line(whole)


def _tail(piece: OutputSlice, limit: int) -> OutputSlice:
    if len(piece.data) <= limit:
        return piece
    start = len(piece.data) - limit
    newline = piece.data.find(b"\n", start)
    if newline not in (-1, len(piece.data) - 1):
        return _tail_from(piece, newline + 1)
    while start < len(piece.data) - 1 and piece.data[start] & 0xC0 == 0x80:
        start += 1
    return _tail_from(piece, start)


def _tail_from(piece: OutputSlice, start: int) -> OutputSlice:
    return replace(piece, start=piece.start + start, data=piece.data[start:]) if start else piece


def _last_lines(piece: OutputSlice, count: int | None) -> OutputSlice:
    return piece if count is None else _tail_from(piece, _start_of_last(piece.data, count))


def _start_of_last(data: bytes, count: int) -> int:
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(count):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1
