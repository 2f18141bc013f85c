"""What is told of a folder that is translated: plain frozen records. Paths are relative to the folder."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Applied", "Skipped", "Source", "Sources", "Translated", "Translation"]


@dataclass(frozen=True, slots=True)
class Source:
    """A file and its text; `translatable`: hipify may be given it, others are only looked through."""

    path: str
    text: str
    translatable: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Sources:
    """`others` counts the files that are neither sources nor name packages."""

    files: tuple[Source, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    others: int = 0


@dataclass(frozen=True, slots=True)
class Translated:
    """A file that the translation changes. `target` is where the result goes, `path` itself where it is
    translated in place; `is_there`: the result of an earlier translation is, and is the same."""

    path: str
    target: str
    before: str
    after: str
    is_there: bool = False


@dataclass(frozen=True, slots=True)
class Translation:
    """`torch` and `python` say by what it was made; `failed` are files that hipify could not take."""

    changed: tuple[Translated, ...] = ()
    failed: tuple[Skipped, ...] = ()
    torch: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    written: tuple[str, ...] = ()
    refused: tuple[Skipped, ...] = ()
