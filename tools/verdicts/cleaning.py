"""Terminal output as the plain lines that a reader would see at the end."""

from __future__ import annotations

import re

__all__ = ["clean", "finished_end", "part"]

# A title that does not end is no title: what follows its first 2,000 characters is shown, however it is read.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]{0,2000}(?:\x07|\x1b\\|\x9c)?"  # titles and links
    r"|\x1b[PX^_][^\x1b\n]{0,2000}(?:\x1b\\)?"  # device strings
    r"|\x1b[ -/]*[0-~]"
)
# An escape that its output has not finished, or one that it has.
_SPANS = re.compile(
    r"(?P<open>(?:\x1b[ -/]*|(?:\x1b\[|\x9b)[0-?]*[ -/]*|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]{0,2000}\x1b?"
    r"|\x1b[PX^_][^\x1b\n]{0,2000}\x1b?)\Z)|" + _ESCAPES.pattern
)
_CONTROLS = re.compile(r"[\x00-\x07\x0b-\x1f\x7f-\x9f]")
_DIRTY = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(data: bytes | str) -> str:
    """Removes what only a terminal understands; applied twice it changes nothing more.

    Colours, titles and control characters go. Of a line that was rewritten in place (a progress bar) the last
    state that shows anything stays. Takes time linear in the size.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    if _DIRTY.search(text) is None:
        return text
    text = _ESCAPES.sub("", text)
    if "\r" in text or "\b" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def _last_state(line: str) -> str:
    if "\r" in line:
        states = line.split("\r")
        line = next((state for state in reversed(states) if state.strip(" \t\b\x00")), "")
    return _typed_over(line) if "\b" in line else line


def _typed_over(line: str) -> str:
    """A line in which each backspace moves one back, and what follows writes over."""
    cells: list[str] = []
    at = 0
    for character in _CONTROLS.sub("", line):
        if character == "\b":
            at = max(0, at - 1)
        elif at < len(cells):
            cells[at] = character
            at += 1
        else:
            cells.append(character)
            at += 1
    return "".join(cells)


def part(data: bytes, limit: int) -> int:
    """Where to part output so that its parts, each cleaned, show together what the whole shows.

    That is after the last line that ends within `limit` bytes; in a line that is longer, before its last
    state if it was rewritten in place, else between two characters and never inside an escape, which may be a
    little later than `limit`. At least one byte is in the first part; `limit` is at least 4.
    """
    if newline := data.rfind(b"\n", 0, limit) + 1:
        return newline
    end = data.find(b"\n", limit)
    cut = _outside_escapes(data[: end if end >= 0 else len(data)], _whole_characters(data, limit))
    state = data.rfind(b"\r", 0, cut)
    return state if state > 0 else cut


def finished_end(data: bytes) -> int:
    """The end of output that is still being written, without the beginning of a character or an escape."""
    line = data.rfind(b"\n") + 1
    return line + _outside_escapes(data[line:], _whole_characters(data, len(data)) - line, least=0)


def _whole_characters(data: bytes, end: int) -> int:
    """`end`, or the beginning of the character that it would cut."""
    for at in range(end - 1, max(-1, end - 4), -1):
        byte = data[at]
        if byte & 0xC0 != 0x80:
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return at if at + needed > end else end
    return end


def _outside_escapes(line: bytes, cut: int, *, least: int = 1) -> int:
    """The end of the escape that `cut` is inside; its beginning, if the line does not have its end."""
    text = line.decode("utf-8", "surrogateescape")
    if _DIRTY.search(text) is None:
        return cut
    at = len(line[:cut].decode("utf-8", "surrogateescape"))
    for span in _SPANS.finditer(text):
        if span.start() < at and (at < span.end() or (at == span.end() and span["open"] is not None)):
            before = span["open"] is not None
            edge = len(text[: span.start() if before else span.end()].encode("utf-8", "surrogateescape"))
            return edge if edge >= least else cut
    return cut
