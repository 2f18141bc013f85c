"""What is known of files on a host. Times are Unix time, sizes and offsets bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FileChunk", "FileDigest", "FileEntry", "FileKind", "FileListing", "FileText"]

FileKind = Literal[
    "file", "directory", "link", "character device", "block device", "fifo", "socket", "unknown"
]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One name in a directory. `target` is where a link points; `error` says why there is no more to tell."""

    name: str
    kind: FileKind
    size: int = 0
    modified_at: float = 0.0
    mode: int = 0
    target: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class FileListing:
    """Entries of a directory, sorted by name; or what was asked for itself, when it is no `directory`.

    `left_out` is how many more match; `note` says where the search itself was cut short.
    """

    path: str
    entries: tuple[FileEntry, ...]
    left_out: int = 0
    note: str = ""
    directory: bool = True


@dataclass(frozen=True, slots=True)
class FileText:
    """A part of a file as text, from offset `start`; `next` is where to go on, None at the end.

    `binary` files come as a description with their first bytes in hexadecimal.
    """

    path: str
    size: int
    modified_at: float
    text: str
    start: int = 0
    next: int | None = None
    binary: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Tells whether two hosts have the same file; `partial` when only its head and tail were read."""

    path: str
    size: int
    modified_at: float
    sha256: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Bytes from `offset`; empty at the end. `size` and `modified_at` tell whether the file has changed."""

    offset: int
    data: bytes
    size: int
    modified_at: float
