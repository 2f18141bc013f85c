"""Which code is the user's, and how a place in it is named. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

__all__ = ["innermost_place", "is_users", "place_in_dump"]

_NOT_THE_USERS = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3[\d.]*/|/milkweed/runtime/|^<frozen |\.so(?:\.[\d.]+)?$"
)
_DUMP_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+) in (.+)$', re.MULTILINE)


def is_users(file: str) -> bool:
    """Whether a file is neither of Python, nor of an installed package, nor ours."""
    return _NOT_THE_USERS.search(file) is None


def innermost_place(frames: Iterable[tuple[str, int, str]]) -> str:
    """`train.py:41 in step` of (file, line, function), innermost first; empty where none is the user's.

    A file below the working directory is told from there, another one by its last two parts.
    """
    for file, line, function in frames:
        if is_users(file):
            return f"{_short(file)}:{line} in {function}"
    return ""


def place_in_dump(stacks: str) -> str:
    """The innermost place of the thread that failed, in what faulthandler dumped."""
    _, marked, own = stacks.partition("Current thread 0x")
    own = own.partition("\nThread 0x")[0] if marked else stacks
    return innermost_place((file, int(line), function) for file, line, function in _DUMP_FRAME.findall(own))


def _short(file: str) -> str:
    below = os.path.relpath(file)
    return below if not below.startswith("..") else "/".join(file.split("/")[-2:])
