"""What the end of an output tells of a death: its last lines, and stacks by faulthandler. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LAST_BYTES", "LastWords", "last_words"]

LAST_BYTES = 64 * 1024
_LINES = 20
_LONGEST_LINE = 400
_MOST_STACKS = 16 * 1024
_FATAL = "Fatal Python error: "


@dataclass(frozen=True, slots=True)
class LastWords:
    """Oldest line first; `stacks` is the text of a dump, empty where there is none."""

    tail: tuple[str, ...] = ()
    stacks: str = ""


def last_words(data: bytes) -> LastWords:
    """Of the last bytes of an output. A dump counts as stacks, but for its first line."""
    text = data.decode(errors="replace")
    at = text.rfind(_FATAL)
    if at < 0:
        return LastWords(_lines(text))
    fatal, _, stacks = text[at:].partition("\n")
    return LastWords(_lines(text[:at] + fatal), stacks.strip()[:_MOST_STACKS])


def _lines(text: str) -> tuple[str, ...]:
    lines = [line.rstrip() for line in text.split("\n")]
    return tuple(line[-_LONGEST_LINE:] for line in lines if line)[-_LINES:]
