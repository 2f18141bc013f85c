"""What a run has left on disk of itself: signals that ended it, and what was kept before it was ended."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ..codec import from_json
from ..services.pyspy import parse_faulthandler
from .records import Fault, Group, HostEvidence, RankEvidence

__all__ = [
    "fault_text",
    "kept_evidence",
    "parse_fault",
    "read_faults",
    "read_group",
    "read_kept",
    "read_modules",
    "read_raised",
    "read_surroundings",
]

_FATAL = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
_MOST_BYTES = 1024 * 1024
_MOST_RAISED = 64 * 1024
_SAVED = "evidence.json"


def read_kept(run_directory: Path) -> HostEvidence | None:
    """What was kept of a run on one host; None where nothing was."""
    try:
        return from_json(HostEvidence, json.loads((run_directory / _SAVED).read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def kept_evidence(run_directory: Path) -> dict[int, RankEvidence]:
    """The same, by rank."""
    kept = read_kept(run_directory)
    return {one.rank: one for one in kept.ranks} if kept is not None else {}


def read_surroundings(run_directory: Path, label: str) -> dict[str, str]:
    """What the first Python of a rank found: its variables, `sys.executable` and `sys.version`."""
    try:
        text = (run_directory / f"{label}.python").read_bytes().decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (item.partition("=") for item in text.split("\0"))
    return {name: value for name, _, value in pairs}


def read_modules(run_directory: Path, label: str) -> dict[str, tuple[str, str]]:
    """What a rank that an exception ended had imported: version and file, by name."""
    for path in sorted(run_directory.glob(f"{label}.modules.*"))[:1]:
        try:
            value = json.loads(path.read_bytes()[:_MOST_BYTES])
            return {str(name): (str(version), str(file)) for name, (version, file) in value.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            continue
    return {}


def read_raised(run_directory: Path, label: str, pid: int | None) -> str:
    """What ended a rank's own process, as Python prints an exception, whether it was printed or not."""
    try:
        path = min(run_directory.glob(f"{label}.raised.{pid or '*'}"))
        with path.open("rb") as file:
            return file.read(_MOST_RAISED).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def read_group(run_directory: Path, label: str) -> Group | None:
    """Of a rank that has made a process group, in torch's words."""
    try:
        return from_json(Group, json.loads((run_directory / f"{label}.group").read_bytes()[:_MOST_BYTES]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def read_faults(run_directory: Path, label: str) -> tuple[Fault, ...]:
    """Of each process of a rank that a signal ended: its own first."""
    found = []
    for path in sorted(run_directory.glob(f"{label}.fault.*"), key=lambda path: (len(path.name), path.name)):
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        if (fault := parse_fault(text)) is not None:
            found.append(fault)
    return tuple(found)


def parse_fault(text: str) -> Fault | None:
    """The last fatal error that faulthandler wrote; None where it wrote none. Pure."""
    errors = list(_FATAL.finditer(text))
    if not errors:
        return None
    return Fault(errors[-1][1].strip(), parse_faulthandler(text[errors[-1].end() :]))


def fault_text(fault: Fault) -> str:
    """As faulthandler prints it, with the one thread that had it."""
    thread = next((one for one in fault.threads if one.active), next(iter(fault.threads[:1]), None))
    frames = thread.frames if thread is not None else ()
    lines = [f'  File "{frame.file}", line {frame.line} in {frame.function}' for frame in frames]
    head = f"Fatal Python error: {fault.reason}\n\nCurrent thread 0x0 (most recent call first):\n"
    return head + "\n".join(lines) + "\n"
