"""What the kernel's log says of devices: NVIDIA's Xid, and amdgpu's resets and RAS. Pure, but for reading it.

NVML tells of an Xid only to whoever waits for it, so the log is the one place that has those of the past.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..kernel_log import KMSG, parse_records, read_records
from .records import DeviceNote, DeviceView

__all__ = ["DEVICE_LINE", "log_notes", "read_log", "recent", "with_log"]

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (\d+)(?:, (.*))?"
)
_AMD = re.compile(r"amdgpu ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.\d: (?:amdgpu: )?(?:\{\d+\})?(.*)")
DEVICE_LINE = re.compile(r"NVRM: Xid|amdgpu [0-9a-f]{4}:")
_AMD_WORDS = (
    (re.compile(r"uncorrectable hardware error"), "ras", "uncorrectable hardware error (RAS)", True),
    (re.compile(r"GPU reset begin"), "reset", "was reset by its driver", False),
    (
        re.compile(r"GPU reset.*failed|Failed to reset|reset\(\d+\) failed", re.IGNORECASE),
        "lost",
        "its reset failed",
        True,
    ),
    (
        re.compile(r"in page ?fault|page fault \("),
        "fault",
        "page fault: a kernel read or wrote where nothing is",
        False,
    ),
    (re.compile(r"ring .* timeout|MES failed to respond"), "reset", "its queues hung", False),
)
# Of NVIDIA's list of Xid errors: those that a program causes, and those after which a device needs help.
_XID_WORDS = {
    13: "a program's kernel did something illegal (out of bounds, as a rule)",
    31: "a program's kernel read or wrote where nothing is",
    43: "a program's kernel was stopped after an error",
    45: "work was taken off the device: a program ended or was killed",
    48: "double-bit ECC error",
    61: "microcontroller fault",
    62: "microcontroller fault",
    63: "a row of memory is remapped",
    64: "a row of memory could not be remapped",
    74: "NVLink error",
    79: "fell off the bus",
    92: "many single-bit ECC errors",
    94: "contained ECC error: the program that met it was ended",
    95: "uncontained ECC error",
    109: "a program's context switch timed out",
    119: "its GSP firmware does not answer",
    120: "its GSP firmware failed",
    140: "unrecovered ECC error",
    154: "the driver asks for a recovery",
}
_XID_SEVERE = frozenset({48, 61, 62, 64, 74, 79, 95, 119, 120, 140, 154})
_LEAST_TEXT = 100
_PER_DEVICE = 4
_DAY_S = 24 * 3600.0


def log_notes(lines: Iterable[str]) -> dict[str, tuple[DeviceNote, ...]]:
    """Notes by PCI address without its function (`0000:01:00`), the newest last; the same again counts up."""
    found: dict[str, dict[DeviceNote, int]] = {}
    for line in lines:
        if xid := _XID.search(line):
            number = int(xid[2])
            words = _XID_WORDS.get(number) or (xid[3] or "").strip()[:_LEAST_TEXT]
            note = DeviceNote("xid", f"Xid {number}: {words}".rstrip(": "), number in _XID_SEVERE)
            address = f"{xid[1].lower().partition(':')[0][-4:]}:{xid[1].lower().partition(':')[2]}"
        elif amd := _AMD.search(line):
            match = next((one for one in _AMD_WORDS if one[0].search(amd[2])), None)
            if match is None:
                continue
            note, address = DeviceNote(match[1], match[2], match[3]), amd[1]  # type: ignore[arg-type]
        else:
            continue
        notes = found.setdefault(address, {})
        notes[note] = notes.pop(note, 0) + 1
    return {
        address: tuple(_counted(note, count) for note, count in notes.items())
        for address, notes in found.items()
    }


def _counted(note: DeviceNote, count: int) -> DeviceNote:
    return replace(note, text=f"{note.text} (kernel's log{f', {count} times' if count > 1 else ''})")


def with_log(view: DeviceView, lines: Sequence[str]) -> DeviceView:
    """The view with what the log says of each device, the latest few."""
    notes = log_notes(lines)
    return replace(
        view,
        devices=tuple(
            replace(one, notes=(*one.notes, *notes.get(one.pci.rpartition(".")[0], ())[-_PER_DEVICE:]))
            for one in view.devices
        ),
    )


def recent(records: Iterable[str], now: float) -> list[str]:
    """The lines of devices among records of /dev/kmsg that are of the last day: older ones may be mended.

    Args:
        now: seconds since boot, as the kernel counts them there.
    """
    return [
        line
        for at, text in parse_records(records)
        if now - at <= _DAY_S
        for line in text.splitlines()
        if DEVICE_LINE.search(line)
    ]


def read_log(path: str = KMSG) -> list[str]:
    """The last day's lines of devices in the kernel's buffer; empty where it may not be read."""
    return recent(read_records(path), time.clock_gettime(time.CLOCK_BOOTTIME))
