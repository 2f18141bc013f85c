"""What py-spy and faulthandler print, as records. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..profiling.records import ProfileRequest
from ..records import Frame, ThreadStack

__all__ = [
    "DumpProblem",
    "explain_failure",
    "parse_faulthandler",
    "parse_pyspy",
    "pyspy_command",
    "record_command",
]

DumpProblem = Literal["denied", "gone", "not_python", "other"]

_BLOCK = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_PROBLEMS: tuple[tuple[DumpProblem, tuple[str, ...]], ...] = (
    ("denied", ("Permission Denied", "Operation not permitted", "EPERM", "os error 13")),
    ("not_python", ("Failed to find python version", "Failed to find a python interpreter")),
    ("gone", ("Check that the process is running", "No such process", "ESRCH", "os error 3)")),
)


def pyspy_command(
    binary: str,
    pid: int,
    *,
    native: bool,
    locals: bool,  # noqa: A002
    stopped: bool,
) -> tuple[str, ...]:
    """Arguments for one dump. A stopped process can only be read unpaused, so without native."""
    options = [*(["--locals"] if locals else [])]
    options += ["--nonblocking"] if stopped else ["--native"] if native else []
    return (binary, "dump", "--json", *options, "--pid", str(pid))


def record_command(binary: str, pid: int, output: str, request: ProfileRequest) -> tuple[str, ...]:
    """Arguments for sampling a process, and those below it, into the file `output`."""
    options = [*(["--native"] if request.native else []), *(["--gil"] if request.gil else [])]
    options += ["--idle"] if request.idle else []
    return (
        *(binary, "record", "--format", "raw", "--full-filenames", "--subprocesses", *options),
        *("--rate", str(request.rate), "--duration", f"{request.seconds:g}"),
        *("--output", output, "--pid", str(pid)),
    )


def parse_pyspy(text: bytes | str, pid: int) -> tuple[ThreadStack, ...]:
    """The threads of `py-spy dump --json`, the main one first.

    Raises:
        ValueError: it is not that output.
    """
    document = json.loads(text)
    if not isinstance(document, list):
        raise ValueError("not a list of threads")
    threads = [_thread(entry, pid) for entry in document]
    return tuple(sorted(threads, key=lambda thread: not thread.main))


def _thread(entry: Any, pid: int) -> ThreadStack:
    try:
        name = entry.get("thread_name") or f"{entry.get('os_thread_id') or entry['thread_id']}"
        return ThreadStack(
            thread=str(name),
            frames=tuple(_frame(frame) for frame in entry["frames"]),
            active=bool(entry.get("active")),
            owns_gil=bool(entry.get("owns_gil")),
            main=entry.get("os_thread_id") == pid or name == "MainThread",
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"a thread of another shape: {error}") from error


def _frame(entry: Mapping[str, Any]) -> Frame:
    values = tuple((str(item["name"]), str(item.get("repr"))) for item in entry.get("locals") or ())
    return Frame(str(entry["name"]), str(entry["filename"]), int(entry["line"]), values)


def explain_failure(stderr: str) -> tuple[DumpProblem, str]:
    """What kind of failure py-spy tells of, and its words without its own backtrace."""
    words = [
        re.sub(r"^\d+: ", "", line.strip())
        for line in stderr.split("Stack backtrace:", maxsplit=1)[0].splitlines()
        if line.strip() and line.strip() != "Caused by:"
    ]
    text = "; ".join(words).removeprefix("Error: ")[:300] or "py-spy gave no reason"
    for problem, marks in _PROBLEMS:
        if any(mark in text for mark in marks):
            return problem, text
    return "other", text


def parse_faulthandler(text: str) -> tuple[ThreadStack, ...]:
    """The threads of the last dump in a faulthandler file, the main one first; empty when there is no dump.

    Threads come newest first, so the last one is the main thread. One that comes again begins a new dump.
    `active` is the one that dumped: of a fault, the one that had it.
    """
    dump: list[tuple[str, list[Frame], bool]] = []
    seen: set[str] = set()
    frames: list[Frame] = []
    for line in text.splitlines():
        if block := _BLOCK.match(line):
            if block[2] in seen:
                dump, seen = [], set()
            seen.add(block[2])
            frames = []
            dump.append((block[3] or block[2], frames, block[1] == "Current thread"))
        elif frame := _FRAME.match(line):
            frames.append(Frame(frame[3], frame[1], int(frame[2])))
        elif not line.startswith("  "):
            frames = []
    return _in_order(dump)


def _in_order(dump: Sequence[tuple[str, Sequence[Frame], bool]]) -> tuple[ThreadStack, ...]:
    last = len(dump) - 1
    threads = [
        ThreadStack("MainThread" if at == last else name, tuple(frames), active=current, main=at == last)
        for at, (name, frames, current) in enumerate(dump)
    ]
    return tuple(threads[::-1])
