"""Output of many ranks as one short text: what they share once, what differs under their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ...runtime.mesh import format_ranks
from .alignment import NUMBER, Row, align, is_important

__all__ = ["fold", "format_gap", "name_ranks"]

_MIN_SHARE = 200
_FEW = 4


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows in succession that the same ranks have; of few ranks a row has the text of each, in order."""

    ranks: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def by_rank(self) -> bool:
        return len(self.ranks) <= _FEW


def name_ranks(ranks: Sequence[int]) -> str:
    """`rank 3` or `ranks 0-2,5`."""
    return f"rank{'s' if len(set(ranks)) > 1 else ''} {format_ranks(ranks)}"


def format_gap(start: int, end: int, lines: int) -> str:
    """The line that stands for the middle that fell out of a capped output file (a range of offsets)."""
    lost = f"{end - start:,} bytes, {lines:,} lines"
    return f"[... {lost} fell out of the capped file here (offsets {start}-{end}) ...]"


def fold(outputs: Mapping[int, str], *, max_bytes: int, hint: str, silence: str = "no output") -> str:
    """One text for the cleaned outputs of ranks, never longer than `max_bytes` in UTF-8.

    Lines that ranks share stand once, in order, under a header such as `ranks 0-2:` whenever the set
    changes; a single rank gets no header. Lines that differ in numbers alone share too, and then show those
    numbers: of few ranks all (`0|0|3|0`, in rank order), of many as `lowest..highest`. A line that may tell
    of trouble (an error, a NaN) never shares with one that differs in anything. Of what is too long head and
    tail stay, and the middle is said with its count of lines and `hint`, the call that gives the rest.
    `silence` is said of ranks without a line.
    """
    if len(outputs) == 1:
        lines = next(iter(outputs.values())).removesuffix("\n").split("\n")
        return _fit([_Block((), tuple((line,) for line in lines))], max_bytes, hint) if lines != [""] else ""
    ranks_of: dict[str, list[int]] = {}
    for rank in sorted(outputs):
        ranks_of.setdefault(_without_own_prefix(outputs[rank], rank), []).append(rank)
    silent = ranks_of.pop("", [])
    tail = f"\n{name_ranks(silent)}: {silence}" if silent and ranks_of else ""
    return _cut(_fold_texts(ranks_of, max_bytes - len(tail), hint) + tail, max_bytes) if ranks_of else ""


def _without_own_prefix(text: str, rank: int) -> str:
    """A rank's text without torch's `[rank3]: `, which the header says already."""
    if f"[rank{rank}]" in text:
        text = re.sub(rf"^\[rank{rank}\]: ?", "", text, flags=re.MULTILINE)
    return text.replace("\0", "").removesuffix("\n")


def _fold_texts(ranks_of: Mapping[str, Sequence[int]], max_bytes: int, hint: str) -> str:
    groups = list(ranks_of.values())
    rows = align(list(ranks_of))
    if rows is None:
        return _in_sections(ranks_of, max_bytes, hint)
    return _fit(list(_blocks(rows, groups)), max_bytes, hint)


def _in_sections(ranks_of: Mapping[str, Sequence[int]], max_bytes: int, hint: str) -> str:
    """Texts that have nothing in common, one after the other, each with its share of the bytes."""
    shown = list(ranks_of.items())[: max(1, max_bytes // _MIN_SHARE)]
    rest = sum(len(ranks) for ranks in ranks_of.values()) - sum(len(ranks) for _, ranks in shown)
    note = f"\n[... {rest} more ranks that wrote other lines; {hint} ...]" if rest else ""
    share = (max_bytes - len(note.encode())) // len(shown) - 1
    sections = [
        _fit([_Block(tuple(ranks), tuple((line,) for line in text.split("\n")))], share, hint)
        for text, ranks in shown
    ]
    return _cut("\n".join(sections) + note, max_bytes)


def _blocks(rows: Sequence[Row], groups: Sequence[Sequence[int]]) -> Iterator[_Block]:
    members: tuple[int, ...] = ()
    texts: list[tuple[str, ...]] = []
    for row in rows:
        if tuple(row.texts) != members and texts:
            yield _Block(_ranks(members, groups), tuple(texts))
            texts = []
        members = tuple(row.texts)
        texts.append(_texts(row, groups))
    yield _Block(_ranks(members, groups), tuple(texts))


def _texts(row: Row, groups: Sequence[Sequence[int]]) -> tuple[str, ...]:
    ranks = {rank: text for member, text in row.texts.items() for rank in groups[member]}
    few = len(ranks) <= _FEW
    return tuple(ranks[rank] for rank in sorted(ranks)) if few else tuple(row.texts.values())


def _ranks(members: Sequence[int], groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted(rank for member in members for rank in groups[member]))


def _show(texts: Sequence[str], *, by_rank: bool) -> str:
    """Lines that are alike as one; numbers that differ stand side by side, or become their range."""
    first = texts[0]
    if all(text == first for text in texts):
        return first
    numbers = list(zip(*(NUMBER.findall(text) for text in texts), strict=True))
    ranges = iter(_range(column, by_rank=by_rank) for column in numbers)
    return NUMBER.sub(lambda _: next(ranges), first)


def _range(column: Sequence[str], *, by_rank: bool) -> str:
    if all(number == column[0] for number in column):
        return column[0]
    if any(number.startswith("0x") for number in column):
        return "0x.."
    if by_rank:
        return "|".join(column)
    lowest, highest = min(column, key=float), max(column, key=float)
    return f"{lowest}..{highest}" if lowest != highest else lowest


def _header(block: _Block, *, ranged: bool) -> str:
    how = "a|b: by rank" if block.by_rank else "a..b: lowest to highest"
    return f"{name_ranks(block.ranks)}{f' ({how})' if ranged else ''}:"


def _fit(blocks: Sequence[_Block], max_bytes: int, hint: str) -> str:
    """All blocks if they fit, else a third of the room for the head, the rest for the tail, and the gap."""
    total = sum(len(block.rows) for block in blocks)
    whole = _take(blocks, max_bytes, max_bytes, backwards=False)
    if whole.rows == total:
        return "\n".join(whole.lines)
    reserve = len(_gap_line(total, total, hint).encode()) + 2
    if max_bytes < 3 * reserve:
        return _cut("\n".join(whole.lines) or _gap_line(total, 0, hint), max_bytes)
    longest = max(40, max_bytes // 4)
    head = _take(blocks, (max_bytes - reserve) // 3, longest, backwards=False)
    tail = _take(blocks, max_bytes - reserve - head.size, longest, backwards=True)
    if head.rows + tail.rows >= total:
        tail = _take(_without(blocks, head.rows), max_bytes - reserve - head.size, longest, backwards=True)
    hidden = list(_hidden(blocks, head.rows, total - tail.rows))
    gap = _gap_line(len(hidden), sum(map(is_important, hidden)), hint)
    return _cut("\n".join([*head.lines, *([gap] if hidden else []), *tail.lines]), max_bytes)


@dataclass(frozen=True, slots=True)
class _Part:
    lines: Sequence[str]
    rows: int
    size: int


def _take(blocks: Sequence[_Block], budget: int, longest: int, *, backwards: bool) -> _Part:
    """Lines from one end, headers among them, until the budget of bytes is used up."""
    step = -1 if backwards else 1
    parts: list[list[str]] = []
    rows = size = 0
    for block in blocks[::step]:
        ranged = False
        reserve = len(_header(block, ranged=True)) + 1 if block.ranks else 0
        lines: list[str] = []
        for texts in block.rows[::step]:
            shown = _show(texts, by_rank=block.by_rank)
            line = _shorten(shown, longest)
            cost = len(line.encode()) + 1
            if size + reserve + cost > budget:
                break
            ranged = ranged or shown != texts[0]
            lines.append(line)
            size += cost
        rows += len(lines)
        if lines:
            header = [_header(block, ranged=ranged)] if block.ranks else []
            size += sum(len(text) + 1 for text in header)
            parts.append([*header, *lines[::step]])
        if len(lines) < len(block.rows):
            break
    return _Part([line for part in parts[::step] for line in part], rows, size)


def _without(blocks: Sequence[_Block], count: int) -> list[_Block]:
    """The blocks without their first `count` rows."""
    left: list[_Block] = []
    for block in blocks:
        rows = block.rows[min(count, len(block.rows)) :]
        count -= len(block.rows) - len(rows)
        if rows:
            left.append(_Block(block.ranks, rows))
    return left


def _hidden(blocks: Sequence[_Block], start: int, stop: int) -> Iterator[str]:
    """One text of each row in a range."""
    return islice((row[0] for block in blocks for row in block.rows), start, stop)


def _gap_line(lines: int, important: int, hint: str) -> str:
    named = f", {important:,} of them with an error or warning" if important else ""
    return f"[... {lines:,} line{'s' if lines != 1 else ''} left out{named}; {hint} ...]"


def _shorten(line: str, longest: int) -> str:
    """A line of at most `longest` bytes or so; what is left out of its middle is said."""
    data = line.encode()
    if len(data) <= longest:
        return line
    keep = max(0, longest - 30) // 2
    head, tail = data[:keep].decode("utf-8", "ignore"), data[len(data) - keep :].decode("utf-8", "ignore")
    return f"{head} [... {len(data) - 2 * keep:,} bytes ...] {tail}"


def _cut(text: str, max_bytes: int) -> str:
    data = text.encode()
    return text if len(data) <= max_bytes else data[: max(0, max_bytes)].decode("utf-8", "ignore")
