"""The Python exception that ended a process, read from the text it wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...runtime.records import Frame
from .frames import is_library, short_path, split_runs

__all__ = ["PythonFailure", "parse_failure", "start_of_last"]

_PREFIX = re.compile(r"^\[(?:rank|default)\d+\]: ?")
_GROUP_PREFIX = re.compile(r"^\s*(?:\+ (?=Exception Group)|\|(?: |$)|\+-[+-].*$)")
_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (.+))?$')
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?(.*))?$")
_SYNTAX = re.compile(r"^(SyntaxError|IndentationError|TabError): (.*)$")
_DUMP_FRAME = re.compile(r'^  File "([^"]+)", line (\d+) in (.+)$')
_NO_MODULE = re.compile(r"^\S*python[\d.]*: (No module named .*)$", re.MULTILINE)
_NO_FILE = re.compile(r"^\S*python[\d.]*: (can't (?:open|find) .*)$", re.MULTILINE)
_TERMINATED = re.compile(
    r"^terminate called after throwing an instance of '([^']+)'(?:\n\s*what\(\):\s*(.*))?", re.MULTILINE
)
# A launcher's report that a child failed says nothing about why.
_REPORTS = ("ChildFailedError", "SignalException", "ProcessRaisedException", "ProcessExitedException")
_MAX_MESSAGE = 400
_MAX_TRACEBACK = 1000
_MAX_TEXT = 262_144
_MAX_CAUSES = 3
_MAX_CAUSE = 300
# What comes before the traceback of an exception that led to the next one, or of one that a message is of.
_CHAINS = ("During handling of the above", "The above exception was the direct")
_REMOTE = "Traceback where it was raised:"
_NEVER_RETRIEVED = "exception was never retrieved"
# Lines of other output that may stand between the lines of one traceback.
_MAX_STRANGERS = 20


@dataclass(frozen=True, slots=True)
class PythonFailure:
    """An uncaught exception.

    `file` and `line` are the innermost place in the user's own code (of any code where there is none);
    `traceback` is its tail as text, outermost first, library frames folded, and then what it was raised from;
    `cause` names the exception that this one was raised from, or the first one of an exception group. `last`
    is the type that the text of all this ends with: of another process, where the exception came from there.
    """

    exception: str
    message: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    cause: str = ""
    last: str = ""

    def __str__(self) -> str:
        return f"{self.exception}: {self.message}" if self.message else self.exception


@dataclass(frozen=True, slots=True)
class _Raised:
    exception: str
    message: str
    frames: tuple[tuple[Frame, str], ...]
    aside: bool = False  # not what ended the process: a thread's, or one that was ignored
    chained: bool = False
    remote: bool = False  # in the message of the one before, whose process it was not raised in

    def __str__(self) -> str:
        return f"{self.exception}: {self.message}" if self.message else self.exception


def parse_failure(text: str, *, workspace: str = "") -> PythonFailure | None:
    """The exception that ended a process, from its cleaned output; None when the text tells of none.

    The last traceback counts, and of a chain the last exception; reports of a launcher about its children,
    and exceptions of threads, tasks or finalisers, count only when there is nothing else.
    """
    lines = [_PREFIX.sub("", line) for line in text[-_MAX_TEXT:].split("\n")]
    raised = list(_tracebacks(lines))
    for candidates in (
        [found for found in raised if not _is_report(found) and not found.aside],
        [found for found in raised if not _is_report(found)],
    ):
        if candidates:
            return _describe(candidates[-1], raised, workspace)
    other = _syntax_error(lines, workspace) or _fatal(lines, workspace) or _without_traceback(text)
    return other or (_describe(raised[-1], raised, workspace) if raised else None)


def start_of_last(data: bytes) -> int | None:
    """Where the last traceback of an output begins, with those that it was raised from; None without one."""
    found = data.rfind(_HEADER.encode())
    if found < 0:
        return None
    start = data.rfind(b"\n", 0, found) + 1
    while start:
        before = data[:start].rstrip()
        link = before.rfind(b"\n") + 1
        if not any(text.encode() in before[link:] for text in (_REMOTE, *_CHAINS)):
            break
        before = before[:link].rstrip()
        header = before.rfind(_HEADER.encode(), before.rfind(b"\n\n") + 1)
        # Of an exception that was never raised here there is but its message.
        start = before.rfind(b"\n", 0, header if header >= 0 else len(before)) + 1
    return start


def _is_report(found: _Raised) -> bool:
    return found.exception.rsplit(".", 1)[-1] in _REPORTS


def _tracebacks(lines: Sequence[str]) -> Iterator[_Raised]:
    at = 0
    chained = aside = remote = before = False
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(_CHAINS):
            chained = True
        elif line.startswith(("Exception ignored in", "Exception in thread")) or _NEVER_RETRIEVED in line:
            aside = True
        elif line.strip() == _REMOTE:
            remote = True
        elif _HEADER in line:
            nested = line.lstrip().startswith("|")  # of an exception group
            found, at = _traceback(lines, at)
            if found is not None:
                exception, message, frames = found
                aside = aside or (before and (chained or remote or nested))
                yield _Raised(exception, message, frames, aside, chained, remote)
                before = aside
                chained = aside = remote = False


def _traceback(
    lines: Sequence[str], at: int
) -> tuple[tuple[str, str, tuple[tuple[Frame, str], ...]] | None, int]:
    frames: list[tuple[Frame, str]] = []
    strangers = 0
    while at < len(lines):
        line = _GROUP_PREFIX.sub("", lines[at])
        if found := _FRAME.match(line):
            source = _source_line(lines, at + 1)
            frames.append((Frame(found[3] or "<module>", found[1], int(found[2])), source))
        elif _HEADER in line:
            return None, at
        elif (found := _EXCEPTION.match(line)) and _is_exception(found[1]):
            message, after = _message(lines, at, found[2] or "")
            return (found[1], message, tuple(frames)), after
        elif line and not line[0].isspace():
            strangers += 1
            if strangers > _MAX_STRANGERS:
                return None, at
        at += 1
    return None, at


def _source_line(lines: Sequence[str], at: int) -> str:
    """The line of source that follows a frame, if there is one."""
    line = _GROUP_PREFIX.sub("", lines[at]) if at < len(lines) else ""
    return line.strip() if line.startswith("    ") and not _FRAME.match(line) else ""


def _is_exception(name: str) -> bool:
    """Exceptions are capitalised or of a module (`struct.error`); other words are output in between."""
    return "." in name or name[0].isupper() or name.startswith("_")


def _message(lines: Sequence[str], at: int, first: str) -> tuple[str, int]:
    """The message of an exception with its further lines, up to an empty one or another traceback."""
    more: list[str] = []
    at += 1
    while at < len(lines) and len(more) < 20:
        line = _GROUP_PREFIX.sub("", lines[at])
        if not line.strip() or _HEADER in line or _SYNTAX.match(line) or lines[at].lstrip().startswith("+-"):
            break
        more.append(line.strip())
        at += 1
    message = first if first.strip() else " ".join(more[:1])
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}... ({len(message):,} characters)"
    return message.strip(), at - len(more)


def _describe(found: _Raised, raised: Sequence[_Raised], workspace: str) -> PythonFailure:
    """Of one that came from another process, the exception that told of it here."""
    last = at = next(index for index, other in enumerate(raised) if other is found)
    while raised[at].remote and at:
        at -= 1
    found = raised[at]
    first = at
    while raised[first].chained and first:
        first -= 1
        while raised[first].remote and first:
            first -= 1
    causes = [*raised[at + 1 : last + 1], *reversed(raised[first:at])]
    own = _own_frame(found)
    here = own[0] if own else found.frames[-1][0] if found.frames else None
    return PythonFailure(
        found.exception,
        found.message,
        "\n".join([_tail(found.frames, str(found), workspace), *_causes(causes, workspace)]),
        short_path(here.file, workspace) if here else "",
        here.line if here else 0,
        str(causes[0]) if causes else "",
        raised[last].exception,
    )


def _own_frame(found: _Raised) -> tuple[Frame, str] | None:
    return next((frame for frame in reversed(found.frames) if not is_library(frame[0].file)), None)


def _causes(causes: Sequence[_Raised], workspace: str) -> list[str]:
    """What it was raised from, nearest first: where the user's own code was, or what is not told by now."""
    shown: list[str] = []
    for cause in causes:
        own = _own_frame(cause)
        if own is None and cause.exception.startswith("milkweed."):
            continue
        lines = [f"from {cause}"[:_MAX_CAUSE]]
        if own is not None:
            lines.append(_frame_text(*own, workspace)[:_MAX_CAUSE])
        shown += [line for line in lines if line not in shown]
    return shown[: 2 * _MAX_CAUSES]


def _tail(frames: Sequence[tuple[Frame, str]], last_line: str, workspace: str) -> str:
    """The user's frames from the innermost out while they fit; each run of library frames as one line."""
    source_of = {id(frame): source for frame, source in frames}
    parts: list[str] = []
    for library, run in split_runs([frame for frame, _ in frames]):
        if not library:
            parts += [_frame_text(frame, source_of[id(frame)], workspace) for frame in run]
            continue
        ended_at = f"{short_path(run[-1].file)}:{run[-1].line} {run[-1].function}"
        parts.append(f"  ... {len(run)} library frame{'s' if len(run) > 1 else ''} to {ended_at}")
    kept: list[str] = []
    room = _MAX_TRACEBACK - len(last_line.encode())
    for part in reversed(parts):
        room -= len(part.encode()) + 1
        if room < 0 and kept:
            kept.append(f"  ... {len(parts) - len(kept)} more outside")
            break
        kept.append(part)
    return "\n".join([*reversed(kept), last_line])


def _frame_text(frame: Frame, source: str, workspace: str) -> str:
    where = f"  {short_path(frame.file, workspace)}:{frame.line} {frame.function}"
    return f"{where}: {source[:160]}" if source else where


def _syntax_error(lines: Sequence[str], workspace: str) -> PythonFailure | None:
    """A SyntaxError in the started script itself comes without a traceback."""
    for at in range(len(lines) - 1, -1, -1):
        found = _SYNTAX.match(lines[at])
        if found is None:
            continue
        for before in range(at - 1, max(-1, at - 6), -1):
            frame = _FRAME.match(lines[before])
            if frame is not None:
                source = lines[before + 1].strip() if before + 1 < at else ""
                shown = _frame_text(Frame("<module>", frame[1], int(frame[2])), source, workspace)
                tail = f"{shown}\n{lines[at]}"
                return PythonFailure(found[1], found[2], tail, short_path(frame[1], workspace), int(frame[2]))
    return None


def _fatal(lines: Sequence[str], workspace: str) -> PythonFailure | None:
    """`Fatal Python error: ...` with the stack of the thread that had it, innermost first."""
    for at in range(len(lines) - 1, -1, -1):
        name, found, message = lines[at].partition("Fatal Python error: ")
        if not found or name:
            continue
        frames: list[tuple[Frame, str]] = []
        dump = lines[at + 1 : at + 400]
        current = next((here for here, line in enumerate(dump) if line.startswith("Current thread")), None)
        if current is None:  # a thread that is not Python's had it: the main one comes last
            current = max((here for here, line in enumerate(dump) if line.startswith("Thread 0x")), default=0)
        for line in dump[current:]:
            if frame := _DUMP_FRAME.match(line):
                frames.append((Frame(frame[3], frame[1], int(frame[2])), ""))
            elif frames:
                break
        raised = _Raised("Fatal Python error", message, tuple(reversed(frames)))
        return _describe(raised, [raised], workspace)
    return None


def _without_traceback(text: str) -> PythonFailure | None:
    if found := _NO_MODULE.search(text):
        return PythonFailure("ModuleNotFoundError", found[1])
    if found := _NO_FILE.search(text):
        return PythonFailure("FileNotFoundError", found[1])
    if found := _TERMINATED.search(text):
        return PythonFailure(found[1], (found[2] or "")[:_MAX_MESSAGE])
    return None
