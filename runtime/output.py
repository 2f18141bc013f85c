"""The output of a rank on disk, and reading it: while it grows, after its end, with or without an agent.

A rank appends to `<label>.out` itself. When that grows over its cap, the middle falls out
(`agent/capping.py`), and `<label>.gap` tells what is where. Offsets are logical: the count of bytes that the
rank ever wrote before.

The order that keeps a reader from taking a hole's zeros for output: the writer puts a new gap into `.gap`
before it takes the bytes away, and a reader looks at `.gap` before and after reading the bytes, and starts
again when it changed. So zeros that it read came from a hole that the second look shows.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .records import OutputSlice

__all__ = [
    "Layout",
    "Segment",
    "decode_layout",
    "encode_layout",
    "output_file",
    "read_layout",
    "read_output",
    "read_slice",
    "write_layout",
]

_TRIES = 50
_READ = 256 * 1024


@dataclass(frozen=True, slots=True)
class Segment:
    """A file that holds `size` bytes from logical offset `start`; a size of -1: all that the file has."""

    name: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the bytes of one output are.

    The half-open range of the gap is gone, with `gap_lines` line ends in it. `.out` begins at `base`; what is
    before is in the segments. While bytes move from `.out` into the last segment (`moving`), `.out` does not
    count.
    """

    gap_start: int = 0
    gap_end: int = 0
    gap_lines: int = 0
    base: int = 0
    segments: tuple[Segment, ...] = ()
    moving: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Extent:
    path: Path
    start: int
    end: int


def output_file(run_directory: Path, label: str) -> Path:
    """Where the rank of this label appends."""
    return run_directory / f"{label}.out"


def layout_file(run_directory: Path, label: str) -> Path:
    return run_directory / f"{label}.gap"


def encode_layout(layout: Layout) -> str:
    return json.dumps(
        {
            "gap_start": layout.gap_start,
            "gap_end": layout.gap_end,
            "gap_lines": layout.gap_lines,
            "base": layout.base,
            "segments": [[part.name, part.start, part.size] for part in layout.segments],
            "moving": layout.moving,
            "note": layout.note,
        }
    )


def decode_layout(text: str) -> Layout:
    """Raises ValueError when the text is no layout."""
    try:
        value = json.loads(text)
        segments = tuple(Segment(str(name), int(start), int(size)) for name, start, size in value["segments"])
        gap_start, gap_end, gap_lines = (
            int(value["gap_start"]),
            int(value["gap_end"]),
            int(value["gap_lines"]),
        )
        base, moving, note = int(value["base"]), bool(value["moving"]), str(value["note"])
        return Layout(gap_start, gap_end, gap_lines, base, segments, moving, note)
    except (TypeError, KeyError) as error:
        raise ValueError(f"no output layout: {text[:80]!r}") from error


def read_layout(run_directory: Path, label: str) -> Layout:
    """The layout as it is now; a whole file where none was written."""
    with suppress(OSError, ValueError):
        return decode_layout(layout_file(run_directory, label).read_text())
    return Layout()


def write_layout(run_directory: Path, label: str, layout: Layout) -> None:
    """Replaces the layout at once. Raises OSError, and the old one holds."""
    path = layout_file(run_directory, label)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(encode_layout(layout))
    os.replace(fresh, path)


def read_slice(
    directory: Path,
    run: str,
    label: str,
    rank: int,
    *,
    offset: int | None = None,
    tail_bytes: int | None = None,
    max_bytes: int,
    ended: bool,
) -> OutputSlice:
    """Up to `max_bytes` of one output from `offset` (default: 0), or of its last `tail_bytes`.

    A slice stops before the gap and its `next` is behind it; one asked for inside the gap starts behind it.
    An output that does not exist is empty. `directory` is the host's; `ended` is passed through.
    """
    return read_output(
        directory / "runs" / run,
        label,
        rank,
        offset=offset,
        tail_bytes=tail_bytes,
        max_bytes=max_bytes,
        ended=ended,
    )


def read_output(
    run_directory: Path,
    label: str,
    rank: int,
    *,
    offset: int | None = None,
    tail_bytes: int | None = None,
    max_bytes: int,
    ended: bool,
) -> OutputSlice:
    """`read_slice` of an output in whatever directory."""
    layout = read_layout(run_directory, label)
    for _ in range(_TRIES):
        before, found = (
            layout,
            _slice(run_directory, label, layout, rank, offset, tail_bytes, max_bytes, ended),
        )
        layout = read_layout(run_directory, label)
        if found is not None and layout == before:
            return found
    # The layout changed under every try: nothing yet, go on from where you are.
    here = offset or 0
    return OutputSlice(rank, here, b"", here, here, ended=False)


def _slice(
    run_directory: Path,
    label: str,
    layout: Layout,
    rank: int,
    offset: int | None,
    tail_bytes: int | None,
    max_bytes: int,
    ended: bool,
) -> OutputSlice | None:
    """The slice by this layout, None when a file of it is gone."""
    try:
        extents = list(_extents(run_directory, label, layout))
    except (FileNotFoundError, IsADirectoryError):
        return None
    size = extents[-1].end if extents else 0
    gap_start, gap_end = (layout.gap_start, layout.gap_end) if layout.gap_end <= size else (0, 0)
    if tail_bytes is None:
        start = min(max(offset or 0, 0), size)
    else:
        start = max(0, size - min(tail_bytes, max_bytes))
    if gap_start <= start < gap_end:
        start = gap_end
    stop = min(start + max_bytes, gap_start if start < gap_start else size)
    data = bytearray()
    for extent in extents:
        at = start + len(data)
        if extent.start <= at < min(extent.end, stop):
            part = _read(extent.path, at - extent.start, min(extent.end, stop) - at)
            if part is None:
                return None
            data += part
    end = start + len(data)
    following = gap_end if gap_start < gap_end and end == gap_start else end
    return OutputSlice(
        rank,
        start,
        bytes(data),
        following,
        size,
        ended,
        gap_start,
        gap_end,
        layout.gap_lines if gap_end else 0,
        layout.note or _missing(run_directory, label, offset, size, ended=ended),
    )


def _missing(run_directory: Path, label: str, offset: int | None, size: int, *, ended: bool) -> str:
    """Why there is less than there was, where the program did that."""
    try:
        mode = output_file(run_directory, label).stat().st_mode
    except FileNotFoundError:
        return "its output file was removed" if ended else ""
    if not stat.S_ISREG(mode):
        return "its output file was replaced by something else"
    return "the program truncated its own output" if (offset or 0) > size else ""


def _extents(run_directory: Path, label: str, layout: Layout) -> Iterator[_Extent]:
    for part in layout.segments:
        path = run_directory / part.name
        yield _Extent(path, part.start, part.start + (part.size if part.size >= 0 else path.stat().st_size))
    if not layout.moving:
        path = output_file(run_directory, label)
        with suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                yield _Extent(path, layout.base, layout.base + status.st_size)


def _read(path: Path, offset: int, length: int) -> bytes | None:
    """Up to `length` bytes; None when the file is gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            data = bytearray()
            while len(data) < length and (part := file.read(min(_READ, length - len(data)))):
                data += part
            return bytes(data)
    except (FileNotFoundError, IsADirectoryError):
        return None
