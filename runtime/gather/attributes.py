"""What a host tells of its files, and the form in which it crosses. Pure, but for `of`."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = [
    "Attributes",
    "Page",
    "Version",
    "is_same_content",
    "is_same_file",
    "of",
    "pack",
    "pack_one",
    "unpack",
    "unpack_one",
]

_RECORD = struct.Struct("<QQQqqQIIII")
_HEAD = struct.Struct("<II")
_GRANULE = 512
_NO_NAME = b"\0"


Version = tuple[int, int, int, int, int]
"""What a content of a file is known by: device, size, mtime, ctime; and the file's number, which some file
systems do not keep (those of FUSE, when memory runs short), so that it alone tells nothing.
"""


class Attributes(NamedTuple):
    """Of one file; times are ns. `device` and `number` tell one file from another on its host."""

    device: int
    number: int
    size: int
    mtime_ns: int
    ctime_ns: int
    blocks: int
    mode: int
    links: int
    uid: int
    gid: int
    target: bytes = b""

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.mode)

    @property
    def version(self) -> Version:
        return self.device, self.size, self.mtime_ns, self.ctime_ns, self.number


class Page(NamedTuple):
    """Entries of a directory in the order of their names; `more` come after the last."""

    entries: list[tuple[bytes, Attributes]]
    more: bool


def is_same_content(one: Version, other: Version) -> bool:
    """Whether nothing was written in between."""
    return one[:4] == other[:4]


def is_same_file(one: Version, other: Version) -> bool:
    """Whether it may be the same file, written to since or not."""
    return is_same_content(one, other) or (one[0], one[4]) == (other[0], other[4])


def of(status: os.stat_result, target: bytes = b"") -> Attributes:
    return Attributes(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_blocks,
        status.st_mode,
        status.st_nlink & 0xFFFFFFFF,
        status.st_uid,
        status.st_gid,
        target,
    )


def pack_one(attributes: Attributes) -> bytes:
    return _RECORD.pack(*attributes[:-1]) + attributes.target


def unpack_one(data: bytes | memoryview) -> Attributes:
    return Attributes._make((*_RECORD.unpack(data[: _RECORD.size]), bytes(data[_RECORD.size :])))


def pack(entries: Sequence[tuple[bytes, Attributes]], more: bool) -> bytes:
    """Records one after another, then names, then what links point to: neither holds a NUL."""
    record = _RECORD.pack
    return b"".join(
        (
            _HEAD.pack(len(entries), more),
            *(record(*attributes[:-1]) for _, attributes in entries),
            _NO_NAME.join([name for name, _ in entries]),
            _NO_NAME,
            _NO_NAME.join([one.target for _, one in entries if one.target]),
        )
    )


def unpack(data: bytes | memoryview) -> Page:
    count, more = _HEAD.unpack(data[: _HEAD.size])
    if not count:
        return Page([], bool(more))
    end = _HEAD.size + count * _RECORD.size
    words = bytes(data[end:]).split(_NO_NAME)
    targets = iter(words[count:])
    made = map(Attributes._make, _padded(_RECORD.iter_unpack(data[_HEAD.size : end])))
    entries = [
        (name, one._replace(target=next(targets)) if stat.S_ISLNK(one.mode) else one)
        for name, one in zip(words[:count], made, strict=True)
    ]
    return Page(entries, bool(more))


def _padded(records: Iterable[tuple[int, ...]]) -> Iterable[tuple[int | bytes, ...]]:
    return ((*record, b"") for record in records)
