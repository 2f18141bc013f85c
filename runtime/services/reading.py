"""Parts of regular files as text, bounded whatever their size. Blocking; run it in a worker thread."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event

from ..errors import InvalidArgument, Unavailable
from ..file_records import FileChunk, FileDigest, FileText
from ..names import quoted
from ..patterns import LinePattern, compile_pattern
from .opening import open_regular

__all__ = ["MAX_CHUNK", "Bounds", "digest_file", "read_chunk", "read_text"]

MAX_CHUNK = 1024 * 1024
_BLOCK = 256 * 1024
_SNIFF = 8192
_NO_FILE_IS_LONGER = 1 << 62
# What is read of a kernel file, which does not tell its size.
_KERNEL_FILE = 4 * MAX_CHUNK
_HEX_BYTES = 64
_MAX_MATCH = 1000
_MAX_SCAN = 512 * 1024 * 1024
_DIGEST_END = 4 * 1024 * 1024
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "ELF program or library"),
    (b"PK\x03\x04", "zip archive (also PyTorch checkpoints, npz, wheels)"),
    (b"\x80\x02", "pickle (also old PyTorch checkpoints)"),
    (b"\x80\x04", "pickle"),
    (b"\x80\x05", "pickle"),
    (b"\x93NUMPY", "NumPy array"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF"),
    (b"SQLite format 3", "SQLite database"),
    (b"PAR1", "Parquet"),
    (b"\x89HDF", "HDF5"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


@dataclass(slots=True)
class Bounds:
    """Where blocking work stops: at a deadline (`time.monotonic()`), or when its caller has gone."""

    deadline: float
    gone: Event = field(default_factory=Event)

    def reached(self) -> bool:
        return self.gone.is_set() or time.monotonic() > self.deadline


def read_text(
    path: str,
    bounds: Bounds,
    *,
    offset: int = 0,
    limit: int | None = None,
    tail: int | None = None,
    grep: str | None = None,
    max_bytes: int = 8192,
) -> FileText:
    """A part of a file: `limit` bytes from `offset`, its last `tail` lines, or the lines that match `grep`.

    The text never exceeds `max_bytes` in UTF-8. With `grep`, `limit` counts lines that begin within it, and
    `tail` gives the last matches.

    Raises:
        NotFound, InvalidArgument: no such file, no regular one, or a wrong argument.
    """
    for name, value, least in (
        ("offset", offset, 0),
        ("limit", limit, 0),
        ("tail", tail, 1),
        ("max_bytes", max_bytes, 1),
    ):
        if value is not None and value < least:
            raise InvalidArgument(
                "invalid_argument", f"{name}={value}; it must be at least {least}", "Call it with that."
            )
    offset = min(offset, _NO_FILE_IS_LONGER)
    pattern = compile_pattern(grep) if grep is not None else None
    with open_regular(path) as (fd, status):
        file = _File(path, fd, status)
        head = _pread(fd, _SNIFF, offset)
        if pattern is not None:
            return _search(file, pattern, offset, limit, tail, max_bytes, bounds)
        if tail is not None:
            return _read_tail(file, tail, max_bytes)
        if _is_binary(head):
            return _describe_binary(file, head, offset)
        return _read_window(file, offset, limit, max_bytes)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    fd: int
    status: os.stat_result

    def text(
        self, text: str, start: int, next_: int | None, *, binary: bool = False, note: str = ""
    ) -> FileText:
        status = self.status
        return FileText(self.path, status.st_size, status.st_mtime, text, start, next_, binary, note)


def _pread(fd: int, length: int, offset: int) -> bytes:
    """Up to `length` bytes; empty at the end, and of kernel files that have nothing to say now."""
    try:
        return os.pread(fd, length, offset)
    except BlockingIOError:
        return b""


def _read_window(file: _File, offset: int, limit: int | None, max_bytes: int) -> FileText:
    wanted = min(max_bytes, max_bytes if limit is None else limit)
    data = _pread(file.fd, wanted + 4, offset)
    more = len(data) > wanted
    data = data[:wanted]
    if more:
        data = _whole(data, at_line=limit is None)
    text = data.decode("utf-8", "replace")
    while len(text.encode()) > max_bytes:
        # Bytes that are no UTF-8 grow to three each.
        data = data[: max(1, len(data) * max_bytes // len(text.encode()) - 1)]
        text, more = data.decode("utf-8", "replace"), True
        if len(data) == 1:
            break
    end = offset + len(data)
    note = f"the file ends at {file.status.st_size}" if not data and 0 < file.status.st_size <= offset else ""
    return file.text(text, offset, end if more else None, note=note)


def _whole(data: bytes, *, at_line: bool) -> bytes:
    """Bytes cut back to the end of a line where one is near, else of a character."""
    newline = data.rfind(b"\n") + 1
    if at_line and newline > len(data) // 2:
        return data[:newline]
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if back < needed and len(data) > back else data
    return data


def _blocks_of(fd: int, most: int) -> Iterator[bytes]:
    """A file from its beginning to its end, or so far."""
    at = 0
    while at < most and (block := _pread(fd, _BLOCK, at)):
        at += len(block)
        yield block


def _read_tail(file: _File, lines: int, max_bytes: int) -> FileText:
    size = file.status.st_size
    start, data = size, b""
    if not size:
        data = b"".join(_blocks_of(file.fd, _KERNEL_FILE))
        size = len(data)
    while start > 0 and len(data) <= max_bytes and data.removesuffix(b"\n").count(b"\n") < lines:
        step = min(65536, start)
        start -= step
        data = _pread(file.fd, step, start) + data
    kept = b"\n".join(data.removesuffix(b"\n").split(b"\n")[-lines:]) + (
        b"\n" if data.endswith(b"\n") else b""
    )
    if _is_binary(kept[-max_bytes:]):
        return _describe_binary(file, kept[:_SNIFF], size - len(kept))
    text = kept.decode("utf-8", "replace")
    wanted = len(text.encode())
    if wanted > max_bytes:
        text = text.encode()[-max_bytes:].decode("utf-8", "ignore")
        newline = text.find("\n") + 1
        text = text[newline:] if 0 < newline < len(text) // 2 else text
    note = "more was asked for than fits: these are its last bytes" if wanted > max_bytes else ""
    return file.text(text, max(0, size - len(text.encode())), None, note=note)


def _search(
    file: _File,
    pattern: LinePattern,
    offset: int,
    limit: int | None,
    tail: int | None,
    max_bytes: int,
    bounds: Bounds,
) -> FileText:
    stop = None if limit is None else offset + limit
    found: deque[str] = deque(maxlen=tail)
    size = matches = 0
    number = 1
    next_: int | None = None
    note = ""
    scan = _Scan(file.fd, offset, bounds)
    for at, line in scan:
        if stop is not None and at >= stop:
            next_ = at
            break
        if pattern.search(line):
            shown = f"{number}:{line[:_MAX_MATCH]}" if not offset else line[:_MAX_MATCH]
            if not found:  # the first is told as far as it fits: the search has to get on
                shown = shown.encode()[: max_bytes - 1].decode("utf-8", "ignore")
            cost = len(shown.encode()) + 1
            if tail is None and size + cost > max_bytes:
                next_, note = at, "more may match: go on from the next offset, or narrow the pattern"
                break
            matches += 1
            size += cost
            found.append(shown)
        number += 1
    else:
        next_, note = scan.stopped_at, scan.note
    lines = list(found)
    while lines and sum(len(line.encode()) + 1 for line in lines) > max_bytes:
        lines.pop(0)
    if len(lines) < matches:
        note = "; ".join(filter(None, (f"the last {len(lines)} of {matches} matches", note)))
    return file.text("".join(f"{line}\n" for line in lines), offset, next_, note=note or f"{matches} matches")


class _Scan:
    """Lines of a file with their offsets; holes are jumped over, and of a line only its head is kept.

    `stopped_at` and `note` tell where and why it stopped before the end, if it did.
    """

    def __init__(self, fd: int, offset: int, bounds: Bounds) -> None:
        self._fd, self._at, self._bounds = fd, offset, bounds
        self.stopped_at: int | None = None
        self.note = ""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        rest, rest_at = b"", self._at
        for at, block in self._blocks():
            if at != rest_at + len(rest) and rest:
                yield rest_at, rest.decode("utf-8", "replace")
                rest = b""
            if not rest:
                rest_at = at
            lines = (rest + block).split(b"\n")
            for line in lines[:-1]:
                yield rest_at, line[: 4 * _MAX_MATCH].decode("utf-8", "replace")
                rest_at += len(line) + 1
            rest = lines[-1]
            if len(rest) > 2 * _BLOCK:
                # A line of megabytes: its head has been kept long enough, go on as if it ended here.
                yield rest_at, rest[: 4 * _MAX_MATCH].decode("utf-8", "replace")
                rest_at, rest = rest_at + len(rest), b""
            if self.stopped_at is not None:
                self.stopped_at = rest_at if rest_at > at else at + len(block)
                return
        if rest:
            yield rest_at, rest[: 4 * _MAX_MATCH].decode("utf-8", "replace")

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        at, scanned = self._at, 0
        started = time.monotonic()
        while block := _pread(self._fd, _BLOCK, at := self._next_data(at)):
            scanned += len(block)
            if scanned >= _MAX_SCAN or self._bounds.reached():
                took = time.monotonic() - started
                self.stopped_at = at + len(block)
                searched = f"searched {scanned / 1e6:,.0f} MB in {took:.1f} s"
                self.note = f"{searched}, then stopped: go on from the next offset"
            yield at, block
            at += len(block)

    def _next_data(self, at: int) -> int:
        """The next offset that is not in a hole; where the file system cannot tell, this one."""
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA)
        except OSError as error:
            return max(at, os.fstat(self._fd).st_size) if error.errno == errno.ENXIO else at


def _is_binary(head: bytes) -> bool:
    if b"\0" in head:
        return True
    text = head.decode("utf-8", "replace")
    return len(text) > 8 and text.count("\ufffd") > len(text) // 4


def _describe_binary(file: _File, head: bytes, offset: int) -> FileText:
    kind = next((name for magic, name in _MAGIC if not offset and head.startswith(magic)), "unknown type")
    if not head.strip(b"\0"):
        kind = "zeros here"
    shown = head[:_HEX_BYTES].hex(" ", -4)
    text = f"binary, {file.status.st_size:,} bytes, {kind}; from offset {offset}: {shown}\n"
    return file.text(text, offset, None, binary=True, note="fetch the file to read it")


def digest_file(path: str, bounds: Bounds) -> FileDigest:
    """SHA-256 of a file; of one above 8 MiB only of its first and last 4 MiB. Raises as `read_text`."""
    with open_regular(path) as (fd, status):
        size = status.st_size
        partial = size > 2 * _DIGEST_END
        ranges = ((0, _DIGEST_END), (size - _DIGEST_END, _DIGEST_END)) if partial else ((0, 2 * _DIGEST_END),)
        digest = hashlib.sha256()
        for start, length in ranges:
            at = start
            while at < start + length:
                if bounds.reached():
                    raise Unavailable(
                        "deadline_exceeded",
                        f"{quoted(path)} is read too slowly to be compared",
                        "Compare it with a run of sha256sum.",
                    )
                block = _pread(fd, min(_BLOCK, start + length - at), at)
                if not block:
                    break
                digest.update(block)
                at += len(block)
        return FileDigest(path, size, status.st_mtime, digest.hexdigest(), partial)


def read_chunk(path: str, offset: int, length: int) -> FileChunk:
    """Bytes of a file for copying it, 1 MiB at most. Raises as `read_text`."""
    if offset < 0 or not 0 < length <= MAX_CHUNK:
        raise InvalidArgument(
            "invalid_argument",
            f"a chunk of {length} bytes at {offset}",
            f"Ask for 1 to {MAX_CHUNK:,} from 0 up.",
        )
    with open_regular(path) as (fd, status):
        return FileChunk(offset, _pread(fd, length, offset), status.st_size, status.st_mtime)
