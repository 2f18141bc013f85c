"""A transcript to read: as Markdown, with what the agent said, called, got and edited. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .format import EditStep, ExpectStep, SayStep, ShellStep, Step, ToolStep, Transcript
from .view import as_call, diff_of, shown

__all__ = ["as_markdown"]

_ANSWER = 1200
_EDIT = 4000


def as_markdown(transcript: Transcript) -> str:
    """Long answers are cut; what a replay expects is left out."""
    header = transcript.header
    shape = " x ".join(str(header.shape[key]) for key in ("hosts", "procs_per_host") if key in header.shape)
    lines = [f"# {header.title or 'A session with Milkweed'}", ""]
    where = f"{header.scheduler}, {shape} (hosts x procs)" if shape else header.scheduler
    lines += [f"Recorded with Milkweed {header.milkweed or 'of an unknown version'} on {where}.", ""]
    for step in transcript.steps:
        lines += _lines(step)
    return "\n".join(lines).rstrip() + "\n"


def _lines(step: Step) -> Iterator[str]:
    match step:
        case SayStep():
            yield from (step.text, "")
        case ShellStep():
            yield from _block("sh", f"$ {step.command}\n{_cut(step.output, _ANSWER)}")
        case EditStep():
            yield from _block("diff", _cut(diff_of(step), _EDIT))
        case ToolStep():
            answer = shown(step.result) if step.result is not None else step.text
            yield f"**{as_call(step.name, step.arguments)}**{' failed' if step.is_error else ''}"
            yield ""
            yield from _block("", _cut(answer, _ANSWER))
        case ExpectStep():
            pass


def _block(kind: str, text: str) -> Iterator[str]:
    """Fenced by more backticks than are in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    yield from (f"{fence}{kind}", text.strip("\n"), fence, "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n... {len(text) - most} more characters"
