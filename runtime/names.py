"""Names of files, and what else an error quotes, as text that is short, printable and can be given back."""

from __future__ import annotations

import os
import re

__all__ = ["parse_name", "printable", "quoted"]

QUOTED_MAX = 120
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPED = re.compile(rb"\\(?:(\\)|(n)|x([0-9a-f]{2}))")


def printable(name: str) -> str:
    r"""A name with its control characters and bytes that are no UTF-8 as escapes: `bad\xffname`, `a\nb`.

    One that has none stays as it is; in one that has, a backslash is doubled.
    """
    if _UNPRINTABLE.search(name) is None:
        return name
    return _UNPRINTABLE.sub(lambda found: _escape(found[0]), name.replace("\\", "\\\\"))


def parse_name(text: str) -> str:
    """The name that `printable` shows as this text, where it shows one with escapes.

    Raises:
        ValueError: text that no file can have as its name.
    """
    return os.fsdecode(_ESCAPED.sub(_unescape, os.fsencode(text)))


def quoted(text: str, limit: int = QUOTED_MAX) -> str:
    """What a caller gave, for an error: printable, and no longer than `limit` characters."""
    shown = printable(text[: limit + 1])
    return shown if len(shown) <= limit and len(text) <= limit else f"{shown[: limit - 3]}..."


def _escape(character: str) -> str:
    if character == "\n":
        return "\\n"
    try:
        data = os.fsencode(character)
    except UnicodeEncodeError:
        data = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def _unescape(found: re.Match[bytes]) -> bytes:
    backslash, newline, byte = found.groups()
    return backslash or (b"\n" if newline else bytes([int(byte, 16)]))
