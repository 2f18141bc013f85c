"""Terminal output as the plain lines that a reader would see at the end."""

from __future__ import annotations

import re

__all__ = ["clean"]

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles and links
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"  # device strings
    r"|\x1b[ -/]*[0-~]"
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
