"""The seam between who has a tree and who shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .deltas import Delta
from .manifest import FileRef, Manifest

__all__ = ["Bytes", "Gone", "Reads", "Source", "Unreadable"]

Bytes = bytes | memoryview


class Gone(Exception):
    """That version of the file is nowhere any more, or not of this source: ESTALE."""


class Unreadable(Exception):
    """The file is there, but cannot be read; `errno` says why."""

    def __init__(self, errno: int) -> None:
        super().__init__(errno)
        self.errno = errno


class Reads(Protocol):
    """Who has bytes: the client, or a host that fetched them before."""

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        """A range of one version, all of it within the file's size.

        Raises:
            Gone: the version cannot be had here.
            Unreadable: the file cannot be read.
            Unavailable: whoever has it does not answer.
        """
        ...

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        """Small files in one go; None for each that cannot be had here, for whatever reason.

        Raises:
            Unavailable: whoever has them does not answer.
        """
        ...


class Source(Reads, Protocol):
    """Who has a tree, and says when it changes."""

    async def open(self) -> Manifest:
        """The whole of it; not to be changed by the caller."""
        ...

    async def since(self, epoch: int, revision: int) -> Delta | Manifest:
        """Waits for a change after that revision; the whole again where the way from there is not known."""
        ...
