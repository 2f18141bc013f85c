"""Folded stacks, as `py-spy record --format raw --subprocesses --full-filenames` writes them. Pure.

A stack is `process 7:"python train.py";outer (file:line);inner (file:line) COUNT`, the outermost frame first.
The command of a process is as it was given, so it may have line breaks and anything else in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..records import Frame

__all__ = ["FoldedStack", "parse_folded"]

_COUNT = re.compile(r"(.*) (\d+)\Z", re.DOTALL)
_END = re.compile(r"\) \d+\Z")
_PROCESS = re.compile(r'(?:^|";)process (\d+):"')
# A path may have anything in it, and so may the name of a native function.
_FRAMES = (
    re.compile(r"(.*?) \((/.*?|<.*?>)(?::(\d+))?\)\Z", re.DOTALL),
    re.compile(r"(.*) \((.*?)(?::(\d+))?\)\Z", re.DOTALL),
)
_END_OF_FRAME = re.compile(r"(?<=\));")


@dataclass(frozen=True, slots=True)
class FoldedStack:
    """A stack that was seen `count` times; frames outermost first. `pid` is None where it is not told."""

    frames: tuple[Frame, ...]
    count: int
    pid: int | None = None


def parse_folded(text: str) -> tuple[FoldedStack, ...]:
    """All stacks of a text; what cannot be read as one is left out."""
    known: dict[str, Frame] = {}
    return tuple(stack for record in _records(text) if (stack := _stack(record, known)) is not None)


def _records(text: str) -> Iterator[str]:
    """A record goes on, over the line breaks of a command, until the end of a frame and its count."""
    held = ""
    for line in text.split("\n"):
        held = f"{held}\n{line}" if held else line
        if _END.search(line) and (not held.startswith("process ") or '";' in held):
            yield held
            held = ""


def _stack(record: str, known: dict[str, Frame]) -> FoldedStack | None:
    found = _COUNT.match(record)
    if found is None:
        return None
    path, count = found[1], int(found[2])
    processes = _PROCESS.findall(path)
    if processes:
        path = path.rpartition('";')[2]
    frames = []
    for name in _END_OF_FRAME.split(path):
        if name not in known:
            known[name] = _frame(name)
        frames.append(known[name])
    return FoldedStack(tuple(frames), count, int(processes[-1]) if processes else None)


def _frame(name: str) -> Frame:
    for pattern in _FRAMES:
        if found := pattern.match(name):
            return Frame(found[1], found[2], int(found[3] or 0))
    return Frame(name, "", 0)
