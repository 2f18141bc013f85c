"""Regular expressions from a caller, with bounded work whatever they say.

Python's `re` backtracks, and can be neither stopped nor given a deadline. RE2 takes time linear in the text
and memory that is capped; the price is a syntax without back references and look-around.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

from .errors import InvalidArgument
from .names import quoted

__all__ = ["LinePattern", "compile_pattern"]

_MAX_PATTERN = 1000
_MAX_MEMORY = 8 << 20


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A compiled pattern, to be searched for in lines."""

    text: str
    _compiled: Any

    def search(self, line: str) -> bool:
        """Whether the line has a match. Linear in its length."""
        # File names and the like may hold bytes that are no text: surrogates, which UTF-8 does not have.
        return self._compiled.search(line.encode("utf-8", "replace")) is not None


def compile_pattern(text: str) -> LinePattern:
    """Makes a regular expression ready for lines.

    Raises:
        InvalidArgument: no regular expression, or one that RE2 cannot bound.
    """
    if len(text) > _MAX_PATTERN:
        raise InvalidArgument(
            "invalid_argument",
            f"a pattern of {len(text):,} characters; at most {_MAX_PATTERN:,}",
            "Search for a part of it.",
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return LinePattern(text, re2.compile(text.encode("utf-8", "replace"), options))
    except re2.error as error:
        why = error.args[0]
        raise InvalidArgument(
            "invalid_argument",
            f"'{quoted(text)}' is no regular expression here: "
            f"{why.decode() if isinstance(why, bytes) else why}",
            "RE2's syntax, without look-around and back references; put a backslash before . * + ? ( ) [ ] to"
            " mean the character.",
        ) from None
