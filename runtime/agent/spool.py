"""The spool: what happened on a host, as JSON lines with sequence numbers, on disk before anybody is told.

It survives the agent and the keeper. A full disk costs nothing but durability: events are kept in memory and
written once there is room, and the spool says so with a `spool_delayed` event.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from ..codec import from_json, to_json
from ..records import Exit, HostEvent, ReplicaNote, Slowness

__all__ = ["Spool", "decode_event", "decode_spool", "encode_event"]

_RECENT = 4096
_BATCH = 1024
_RETRY_S = 2.0


def encode_event(event: HostEvent) -> bytes:
    """One line, with its end."""
    return json.dumps(to_json(event), separators=(",", ":")).encode() + b"\n"


def decode_event(line: bytes) -> HostEvent:
    """The event of one line.

    Raises:
        ValueError: the line holds none.
    """
    try:
        return from_json(HostEvent, json.loads(line))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no event: {line[:80]!r}") from error


def decode_spool(text: bytes) -> tuple[HostEvent, ...]:
    """The events of a spool, without a torn last line and whatever else is no event."""
    events = []
    for line in text.split(b"\n")[:-1]:
        try:
            events.append(decode_event(line))
        except ValueError:
            continue
    return tuple(events)


class Spool:
    """The writing side; one a host directory. Opening cuts off a torn last line and goes on counting."""

    def __init__(self, path: Path, *, write: Callable[[int, bytes], int] = os.write) -> None:
        """Raises OSError when the file cannot be opened."""
        self._path = path
        self._write = write
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.ftruncate(self._fd, whole)
        events = decode_spool(text)
        self._seq = events[-1].seq if events else 0
        self._recent: deque[HostEvent] = deque(events, maxlen=_RECENT)
        self._unsaved = bytearray()
        self._delayed = False
        self._appended = anyio.Event()

    @staticmethod
    def read(path: Path) -> tuple[HostEvent, ...]:
        """All events of a spool file, which may be growing; none when there is no file."""
        try:
            return decode_spool(path.read_bytes())
        except FileNotFoundError:
            return ()

    @property
    def seq(self) -> int:
        """Number of the newest event, 0 before the first."""
        return self._seq

    @property
    def unsaved(self) -> int:
        """Bytes that are not on disk yet."""
        return len(self._unsaved)

    def append(
        self,
        kind: str,
        *,
        run: str = "",
        rank: int | None = None,
        pid: int | None = None,
        exit: Exit | None = None,  # noqa: A002 - the record's own name
        detail: str = "",
        note: ReplicaNote | None = None,
        slow: Slowness | None = None,
    ) -> HostEvent:
        """Adds an event, which is on disk on return unless the disk refuses; never raises for that."""
        event = self._add(kind, run=run, rank=rank, pid=pid, exit=exit, detail=detail, note=note, slow=slow)
        trouble = self.flush()
        if trouble and not self._delayed:
            self._delayed = True
            self._add(
                "spool_delayed", detail=f"events are kept in memory until the disk takes them: {trouble}"
            )
        self._appended.set()
        self._appended = anyio.Event()
        return event

    def _add(self, kind: str, **fields: Any) -> HostEvent:
        self._seq += 1
        event = HostEvent(self._seq, time.time(), kind, **fields)
        self._recent.append(event)
        self._unsaved += encode_event(event)
        return event

    def flush(self) -> str:
        """Writes what is unsaved, from where it stopped; returns why it cannot, or an empty text."""
        while self._unsaved:
            try:
                count = self._write(self._fd, bytes(self._unsaved))
            except OSError as error:
                return error.strerror or str(error)
            del self._unsaved[:count]
        self._delayed = False
        return ""

    async def after(self, seq: int, wait_s: float) -> tuple[HostEvent, ...]:
        """Events later than `seq`, oldest first, a limited number at once; waits up to `wait_s` for one."""
        deadline = anyio.current_time() + wait_s
        while seq >= self._seq and (left := deadline - anyio.current_time()) > 0:
            appended = self._appended
            with anyio.move_on_after(min(left, _RETRY_S) if self._unsaved else left):
                await appended.wait()
            self.flush()
        return self._since(seq)

    def _since(self, seq: int) -> tuple[HostEvent, ...]:
        oldest = self._recent[0].seq if self._recent else 1
        events = self._recent if seq + 1 >= oldest else [*Spool.read(self._path), *self._recent]
        found: list[HostEvent] = []
        for event in events:
            if event.seq > max(seq, found[-1].seq if found else 0):
                found.append(event)
            if len(found) == _BATCH:
                break
        return tuple(found)

    def close(self) -> None:
        self.flush()
        os.close(self._fd)
