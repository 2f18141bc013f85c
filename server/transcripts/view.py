"""A replay as people see it: the agent's words, calls and answers, edits, and what is not as recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ..screen import Screen
from .diffs import make_diff
from .format import EditStep, ExpectStep, SayStep, ShellStep, Step, ToolStep
from .replay import Played

__all__ = ["JsonView", "ScreenView", "View", "summary_of"]

_ANSWER = 3000


class View(Protocol):
    def begin(self, number: int, step: Step) -> None: ...

    def end(self, played: Played) -> None: ...

    def finish(self, played: list[Played], total: int) -> None: ...


class ScreenView:
    """On a screen; of `total` steps."""

    def __init__(self, screen: Screen, total: int) -> None:
        self._screen = screen
        self._total = total

    def begin(self, number: int, step: Step) -> None:
        if isinstance(step, SayStep):
            self._screen.heading(f"{number}/{self._total}  {step.text}")
        elif isinstance(step, EditStep):
            self._screen.note(f"\n{number}/{self._total}  edit {step.file}")
            self._screen.diff(diff_of(step))
        elif isinstance(step, ShellStep):
            self._screen.call(f"{number}/{self._total}  $ {step.command}")
        elif isinstance(step, ToolStep):
            self._screen.call(f"{number}/{self._total}  {as_call(step.name, step.arguments)}")

    def end(self, played: Played) -> None:
        if isinstance(played.step, ToolStep | ShellStep) and played.answer is not None:
            text = shown(played.answer.result) if played.answer.result is not None else played.answer.text
            self._screen.answer(_cut(text), played.duration_s, len(text))
        if isinstance(played.step, ExpectStep) and not played.problem:
            self._screen.note(f"as expected: {expectation(played.step)}")
        if played.note:
            self._screen.note(played.note)
        for difference in played.differences:
            self._screen.diff(f"- {difference.where}: {difference.recorded}\n+ {difference.where}: {difference.live}")
        if played.problem:
            self._screen.note(f"step {played.number}: {played.problem}")

    def finish(self, played: list[Played], total: int) -> None:
        self._screen.note(f"\n{summary_of(played, total)}")


class JsonView:
    """One line of JSON a step, and a last one of the whole."""

    def __init__(self, write: Any) -> None:
        self._write = write

    def begin(self, number: int, step: Step) -> None:
        return None

    def end(self, played: Played) -> None:
        self._line(
            {
                "step": played.number,
                "kind": played.step.kind,
                "name": getattr(played.step, "name", ""),
                "as_recorded": played.is_as_recorded,
                "problem": played.problem,
                "note": played.note,
                "differences": [
                    {"where": one.where, "recorded": one.recorded, "now": one.live}
                    for one in played.differences
                ],
                "duration_s": played.duration_s,
            }
        )

    def finish(self, played: list[Played], total: int) -> None:
        ok = len(played) == total and all(one.is_as_recorded for one in played)
        self._line({"steps": total, "played": len(played), "as_recorded": ok})

    def _line(self, fields: Mapping[str, Any]) -> None:
        self._write(json.dumps(fields, ensure_ascii=False, default=str) + "\n")


def summary_of(played: list[Played], total: int) -> str:
    unlike = [one.number for one in played if not one.is_as_recorded]
    whole = f"{len(played)} of {total} steps" if len(played) < total else f"{total} steps"
    if not unlike and len(played) == total:
        return f"{whole}, all as recorded"
    where = f"step{'s' if len(unlike) > 1 else ''} {', '.join(map(str, unlike))}"
    return f"{whole}, not as recorded: {where}" if unlike else f"{whole}, as recorded so far"


def diff_of(step: EditStep) -> str:
    if step.deleted:
        return f"--- a/{step.file}\n+++ /dev/null"
    return step.diff if step.text is None else make_diff("", step.text, step.file)


def as_call(name: str, arguments: Mapping[str, Any]) -> str:
    words = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{name}({', '.join(words)})"


def shown(result: Mapping[str, Any]) -> str:
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in result.items()]
    return "{" + ",\n ".join(lines) + "}"


def expectation(step: ExpectStep) -> str:
    what = step.field or "the answer"
    fields = step.model_dump(exclude_defaults=True, exclude={"kind", "field"})
    return f"{what} {', '.join(f'{name} {value!r}' for name, value in fields.items())}"


def _cut(text: str) -> str:
    return text if len(text) <= _ANSWER else f"{text[:_ANSWER]}\n... {len(text) - _ANSWER} more characters"
