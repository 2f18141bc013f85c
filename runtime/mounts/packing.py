"""Manifests and deltas as bytes: columns of numbers, and names joined by zero bytes, which no name contains.

50,000 entries are some 2.5 MB, packed or unpacked in some 30 ms.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, compress, islice
from typing import Any

from ..errors import ProtocolError
from ..wire import SAME_VERSION
from .deltas import Delta
from .manifest import LINK, Entry, Manifest

__all__ = ["pack_delta", "pack_manifest", "unpack", "unpack_delta", "unpack_manifest"]

_MANIFEST = b"mwM1"
_DELTA = b"mwD1"
_HEAD = struct.Struct("<4s3Q")
_LENGTH = struct.Struct("<Q")
_COLUMNS = "BHQqQ"  # kind, mode, size, mtime_ns, version
_entry_of = partial(tuple.__new__, Entry)

Data = bytes | memoryview


def pack_manifest(manifest: Manifest) -> bytes:
    paths = list(manifest.directories)
    contents = manifest.directories.values()
    counts = array("I", map(len, contents))
    names = list(chain.from_iterable(contents))
    entries = [manifest.root, *chain.from_iterable(map(dict.values, contents))]
    blocks = [_joined(paths), _numbers(counts), _joined(names), *_packed(entries)]
    return _framed(_HEAD.pack(_MANIFEST, manifest.epoch, manifest.revision, 0), blocks)


def pack_delta(delta: Delta) -> bytes:
    names = [path for path, _ in delta.put]
    entries = [entry for _, entry in delta.put]
    head = _HEAD.pack(_DELTA, delta.epoch, delta.base, delta.revision)
    return _framed(head, [_joined(delta.removed), _joined(names), *_packed(entries)])


def unpack(data: Data) -> Manifest | Delta:
    """
    Raises:
        ProtocolError: it is neither.
    """
    return unpack_manifest(data) if bytes(data[:4]) == _MANIFEST else unpack_delta(data)


def unpack_manifest(data: Data) -> Manifest:
    """
    Raises:
        ProtocolError: it is none.
    """
    try:
        (_, epoch, revision, _), blocks = _unframed(data, _MANIFEST)
        paths, names = _split(blocks[0]), iter(_split(blocks[2]))
        counts: array[int] = _read("I", blocks[1])
        root, *entries = _unpacked(blocks[3:])
        pairs = zip(names, entries, strict=True)
        directories = {path: dict(islice(pairs, count)) for path, count in zip(paths, counts, strict=True)}
        if b"" not in directories or next(pairs, None) is not None:
            raise ValueError
    except (ValueError, struct.error, IndexError):
        raise _unreadable() from None
    return Manifest(epoch, revision, root, directories)


def unpack_delta(data: Data) -> Delta:
    """
    Raises:
        ProtocolError: it is none.
    """
    try:
        (_, epoch, base, revision), blocks = _unframed(data, _DELTA)
        removed = tuple(_split(blocks[0]))
        put = tuple(zip(_split(blocks[1]), _unpacked(blocks[2:]), strict=True))
    except (ValueError, struct.error, IndexError):
        raise _unreadable() from None
    return Delta(epoch, base, revision, removed, put)


def _packed(entries: Sequence[Entry]) -> list[bytes]:
    columns: Sequence[Any] = list(zip(*entries, strict=True)) or [()] * 6
    numbers = zip(_COLUMNS, columns, strict=False)
    targets = [target for target in columns[-1] if target]  # no link has an empty one
    return [*(_numbers(array(kind, column)) for kind, column in numbers), _joined(targets)]


def _unpacked(blocks: Sequence[Data]) -> list[Entry]:
    columns = [_read(kind, block) for kind, block in zip(_COLUMNS, blocks, strict=False)]
    kinds = columns[0].tobytes()
    targets: list[bytes] = [b""] * len(kinds)
    links = compress(range(len(kinds)), map(LINK.__eq__, kinds))
    for at, target in zip(links, _split(blocks[len(_COLUMNS)]), strict=True):
        targets[at] = target
    return list(map(_entry_of, zip(*columns, targets, strict=True)))


def _joined(names: Sequence[bytes]) -> bytes:
    """With a zero byte after each, so that no names and one empty name differ."""
    return b"\0".join(names) + b"\0" if names else b""


def _split(block: Data) -> list[bytes]:
    names = bytes(block).split(b"\0")
    if names.pop():
        raise ValueError
    return names


def _numbers(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _read(kind: str, block: Data) -> array[int]:
    column = array(kind)
    column.frombytes(block)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _framed(head: bytes, blocks: Iterable[bytes]) -> bytes:
    return b"".join([head, *chain.from_iterable((_LENGTH.pack(len(block)), block) for block in blocks)])


def _unframed(data: Data, magic: bytes) -> tuple[tuple[Any, ...], list[memoryview]]:
    view = memoryview(data)
    head = _HEAD.unpack_from(view)
    if head[0] != magic:
        raise ValueError
    at, blocks = _HEAD.size, []
    while at < len(view):
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if at + length > len(view):
            raise ValueError
        blocks.append(view[at : at + length])
        at += length
    return head, blocks


def _unreadable() -> ProtocolError:
    return ProtocolError("protocol_error", "a manifest or delta could not be read", SAME_VERSION)
