"""What the overlay of a host cannot be read from its files: what was removed, and what each name stands over.

Appended to as it happens, before it happens: whoever kills the process takes nothing back that a program was
told is done. A power cut may; the files themselves are no better off then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from .overlay import HostCopy

__all__ = ["CLASHED", "FORGOTTEN", "OVER", "REMOVED", "TOLD", "Known", "OverlayLog", "Record"]

OVER: Final = b"w"
"""What the host is about to write under this name stands over that base."""
REMOVED: Final = b"r"
FORGOTTEN: Final = b"f"
"""The host did nothing to it, or not any more."""
CLASHED: Final = b"c"
"""A `HostCopy` that the client was not told of yet."""
TOLD: Final = b"t"
"""All of those are told."""

_HEAD = Struct("=cqHH")
_LEAST_COMPACTED = 64 * 1024


class Record(NamedTuple):
    op: bytes
    path: bytes = b""
    base: int = 0
    kept: bytes = b""


@dataclass(slots=True)
class Known:
    """What all records together say; `over` counts for names that are there, `removed` for others."""

    over: dict[bytes, int] = field(default_factory=dict)
    removed: dict[bytes, int] = field(default_factory=dict)
    untold: list[HostCopy] = field(default_factory=list)

    def note(self, record: Record) -> None:
        op, path, base, kept = record
        if op == OVER:
            self.over[path] = base
        elif op == REMOVED:
            self.over.pop(path, None)
            self.removed[path] = base
        elif op == FORGOTTEN:
            self.over.pop(path, None)
            self.removed.pop(path, None)
        elif op == CLASHED:
            self.untold.append(HostCopy(path, kept))
        elif op == TOLD:
            self.untold.clear()

    def base(self, path: bytes) -> int:
        """Of something that is there."""
        return self.over.get(path, self.removed.get(path, 0))


class OverlayLog:
    """A file of records."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            OSError: it cannot be made or read.
        """
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> Known:
        """What there is; the beginning of a record at the end, which a kill left, is cut off."""
        data = self._path.read_bytes()
        known, at = Known(), 0
        while at + _HEAD.size <= len(data):
            op, base, path_length, kept_length = _HEAD.unpack_from(data, at)
            path_at = at + _HEAD.size
            end = path_at + path_length + kept_length
            if end > len(data):
                break
            known.note(
                Record(op, data[path_at : path_at + path_length], base, data[path_at + path_length : end])
            )
            at = end
        os.ftruncate(self._fd, at)
        return known

    def add(self, records: Sequence[Record]) -> None:
        """All of them or none.

        Raises:
            OSError: the disk is full.
        """
        if not records:
            return
        data = b"".join(map(_packed, records))
        length = os.lseek(self._fd, 0, os.SEEK_END)
        try:
            if os.write(self._fd, data) != len(data):
                raise OSError(28, "no room for all of it")
        except OSError:
            os.ftruncate(self._fd, length)
            raise

    def compact(self, records: Iterable[Record]) -> None:
        """These in place of all that there are, if that is worth it."""
        data = b"".join(map(_packed, records))
        if os.fstat(self._fd).st_size <= max(_LEAST_COMPACTED, 2 * len(data)):
            return
        with suppress(OSError):  # a full disk: it goes on as it is
            self._replace(data)

    def replace(self, records: Iterable[Record]) -> None:
        """These in place of all that there are.

        Raises:
            OSError: the disk is full; all is as it was.
        """
        self._replace(b"".join(map(_packed, records)))

    def _replace(self, data: bytes) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(28, "no room for all of it")
            os.rename(fresh, self._path)
        except OSError:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd = fd

    def close(self) -> None:
        os.close(self._fd)


def _packed(record: Record) -> bytes:
    return _HEAD.pack(record.op, record.base, len(record.path), len(record.kept)) + record.path + record.kept
