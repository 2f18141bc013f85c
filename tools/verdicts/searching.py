"""Lines of a text that a regular expression matches."""

from __future__ import annotations

from ...runtime.patterns import compile_pattern

__all__ = ["grep"]


def grep(text: str, pattern: str, *, numbered: bool = False) -> str:
    """The lines that match, each ended by a newline; empty when none does.

    Args:
        pattern: a regular expression, found anywhere in a line.
        numbered: put `12:` before the twelfth line.

    Raises:
        InvalidArgument: the pattern is wrong.
    """
    compiled = compile_pattern(pattern)
    return "".join(
        f"{number}:{line}\n" if numbered else f"{line}\n"
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
        if compiled.search(line)
    )
