"""Which command lines of Python can start warm: a pure reading of them, as the interpreter does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Cold", "NotPython", "PythonCommand", "parse_command"]

# They change nothing that a fork could not show, or are the same for all runs of a starter.
_FLAGS = frozenset("bBdOqRsuP")
_X_OPTIONS = frozenset(
    (
        "dev",
        "faulthandler",
        "frozen_modules",
        "int_max_str_digits",
        "no_debug_ranges",
        "pycache_prefix",
        "utf8",
    )
)


class Cold(Exception):
    """Why a command starts cold, in words that follow `cold: `."""


class NotPython(Cold):
    """It could never start warm."""


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """`python`, its flags in their order, and what it runs: a script's path, or the code of -c, or -m."""

    python: str
    flags: tuple[str, ...]
    script: str | None = None
    code: str | None = None


def parse_command(argv: Sequence[str]) -> PythonCommand:
    """
    Raises:
        Cold: it is no script, -m or -c, or has a flag that warm starts do not know.
    """
    flags: list[str] = []
    at = 1
    while at < len(argv):
        word = argv[at]
        if word == "-" or not word.startswith("-"):
            break
        if word.startswith("--"):
            raise Cold(f"the option {word} of Python")
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in "cmWX":
                rest = argv[at + 1 : at + 2] if not letters else [letters]
                if not rest:
                    raise Cold(f"-{letter} without its argument")
                if letter in "cm":
                    return PythonCommand(argv[0], tuple(flags), None, rest[0] if letter == "c" else None)
                if letter == "X" and rest[0].partition("=")[0] not in _X_OPTIONS:
                    raise Cold(f"the option -X {rest[0]} of Python")
                flags += [f"-{letter}", rest[0]]
                at += not letters
                break
            if letter not in _FLAGS:
                raise Cold(f"the option -{letter} of Python")
            flags.append(f"-{letter}")
        at += 1
    if at >= len(argv) or argv[at] == "-":
        raise Cold("Python reads its program from standard input")
    return PythonCommand(argv[0], tuple(flags), script=argv[at])
