"""Reading the kernel's log (/dev/kmsg): records of `priority,number,microseconds,flags;text`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

__all__ = ["KMSG", "parse_records", "read_records"]

KMSG = "/dev/kmsg"
_RECORD_BYTES = 8192
_MOST_RECORDS = 20_000


def read_records(path: str = KMSG) -> Iterator[str]:
    """What the kernel's buffer holds now, the oldest first; nothing where it may not be read."""
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(_MOST_RECORDS):
            try:
                data = os.read(log, _RECORD_BYTES)
            except BrokenPipeError:  # one that was overwritten meanwhile; the next read goes on
                continue
            except OSError:
                return
            if not data:
                return
            yield data.decode("utf-8", "replace")
    finally:
        os.close(log)


def parse_records(records: Iterable[str]) -> Iterator[tuple[float, str]]:
    """Each record's seconds since boot and its text, continued lines with it; junk is passed over. Pure."""
    for record in records:
        head, _, text = record.partition(";")
        fields = head.split(",")
        if len(fields) >= 3 and fields[2].isascii() and fields[2].isdecimal():
            yield int(fields[2]) / 1e6, text
