"""Whether a live answer says what was recorded: by the fields and the facts that matter, not by its words.

Times, sizes, ids, order and wording differ between any two sessions; states, sets of ranks, causes and places
must not. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .answers import Answer
from .format import ExpectStep, ToolStep

__all__ = ["Difference", "compare", "field_of", "unmet"]

# Fields of structured answers that tell what happened, by their names wherever they are.
_TELLING = frozenset(
    {
        "state",
        "health",
        "cause",
        "exception",
        "file",
        "line",
        "exit",
        "ranks",
        "matched",
        "verdict",
        "hosts",
        "procs_per_host",
        "world_size",
        "workspace_mode",
        "is_isolated",
    }
)
_RANKS = re.compile(r"\branks? (\d+(?:[-,]\d+)*)")
_EXCEPTION = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Interrupt))\b(?::\s*([^\n]{1,80}))?")
_PLACE = re.compile(r"(?<![\w/.-])([\w./-]*\w\.(?:py|cpp|cu|hip|c|h)):(\d+)")
_CODE = re.compile(r"^([a-z]+(?:_[a-z]+)+):")
_VOLATILE = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?")
# Of tools that answer in text: what of it must be the same.
_FACTS: Mapping[str, tuple[str, ...]] = {
    "stack_dump": ("ranks", "places"),
    "read_run_output": ("exceptions",),
    "search_remote_files": ("places",),
}
_HOW_FAR = ("state", "ranks")
_STARTING = ("queued", "starting", "pending")


@dataclass(frozen=True, slots=True)
class Difference:
    """`where`: a field, or a kind of fact; `recorded` and `live` are what each says there."""

    where: str
    recorded: Any
    live: Any

    def __str__(self) -> str:
        return f"{self.where}: recorded {_shown(self.recorded)}, now {_shown(self.live)}"


def compare(step: ToolStep, live: Answer) -> tuple[Difference, ...]:
    """Of a recorded call and an answer; both with the same names or the same values for ids."""
    if step.is_error or live.is_error:
        return _errors(step, live)
    if step.result is not None and live.result is not None:
        recorded, now = dict(_telling(step.result)), dict(_telling(live.result))
        further = _HOW_FAR if _has_ended_since(step.result, live.result) else ()
        return tuple(
            Difference(where, recorded.get(where), now.get(where))
            for where in sorted(recorded.keys() | now.keys())
            if where not in further and not _alike(recorded.get(where), now.get(where))
        )
    return tuple(_facts_differ(step.name, step.text, live.text))


def _has_ended_since(recorded: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """A run that went on well may have ended well before a replay asks, which pauses to be read."""
    went_on = recorded.get("state") == "running" and recorded.get("health", "ok") == "ok"
    return "run" in recorded and went_on and live.get("state") == "succeeded"


def _errors(step: ToolStep, live: Answer) -> tuple[Difference, ...]:
    if step.is_error != live.is_error:
        words = {True: "an error", False: "an answer"}
        return (
            Difference(
                "outcome",
                f"{words[step.is_error]}: {step.text[:200]}",
                f"{words[live.is_error]}: {live.text[:200]}",
            ),
        )
    codes = [found[1] if (found := _CODE.match(text)) else "" for text in (step.text, live.text)]
    return () if codes[0] == codes[1] else (Difference("error code", *codes),)


def _telling(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Paths of fields that matter with what they say. Items of a list are told apart by their order."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            at = f"{where}.{name}" if where else str(name)
            if name in _TELLING and not isinstance(item, list):
                yield (at, dict(item)) if isinstance(item, Mapping) else (at, item)
            elif isinstance(item, Mapping | list):
                yield from _telling(item, at)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _telling(item, f"{where}[{number}]")


def _alike(recorded: Any, live: Any) -> bool:
    if isinstance(recorded, str) and isinstance(live, str):
        return _VOLATILE.sub("#", recorded) == _VOLATILE.sub("#", live) if " " in recorded else recorded == live
    if isinstance(recorded, Mapping) and isinstance(live, Mapping):  # ranks by state
        return {key: value for key, value in recorded.items() if key not in _STARTING} == {
            key: value for key, value in live.items() if key not in _STARTING
        }
    return bool(recorded == live) or (not recorded and not live)


def _facts_differ(tool: str, recorded: str, live: str) -> Iterator[Difference]:
    for kind in _FACTS.get(tool, ()):
        before, now = _KINDS[kind](recorded), _KINDS[kind](live)
        if before != now:
            yield Difference(kind, sorted(before), sorted(now))


def _ranks(text: str) -> set[str]:
    return set(_RANKS.findall(text))


def _exceptions(text: str) -> set[str]:
    return {name for name, _ in _EXCEPTION.findall(text)}


def _places(text: str) -> set[str]:
    return {f"{file.rpartition('/')[2]}:{line}" for file, line in _PLACE.findall(text)}


_KINDS: Mapping[str, Callable[[str], set[str]]] = {
    "ranks": _ranks,
    "exceptions": _exceptions,
    "places": _places,
}


def field_of(result: Any, path: str) -> Any:
    """`first_failure.exception`, `runs[0].state`; None where there is no such field."""
    for part in filter(None, re.split(r"[.\[\]]", path)):
        if isinstance(result, Mapping):
            result = result.get(part)
        elif isinstance(result, list) and part.isdecimal() and int(part) < len(result):
            result = result[int(part)]
        else:
            return None
    return result


def unmet(step: ExpectStep, last: Answer) -> str:
    """What does not hold of the last answer, in words; empty where all holds."""
    value: Any = field_of(last.result, step.field) if step.field else last.text
    what = step.field or "the answer"
    if step.number:
        found = re.search(step.number, str(value))
        if found is None:
            return f"{what} has no number like {step.number!r}: {_shown(value)}"
        value, what = float(found[1]), f"the number of {step.number!r} in {what}"
    if step.equals is not None and value != step.equals:
        return f"{what} is {_shown(value)}, not {step.equals!r}"
    if step.contains is not None and step.contains not in str(value):
        return f"{what} has no {step.contains!r}: {_shown(value)}"
    if step.matches is not None and not re.search(step.matches, str(value)):
        return f"{what} has nothing like {step.matches!r}: {_shown(value)}"
    return _out_of_bounds(step, value, what)


def _out_of_bounds(step: ExpectStep, value: Any, what: str) -> str:
    if step.at_most is None and step.at_least is None:
        return ""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return f"{what} is no number: {_shown(value)}"
    if step.at_most is not None and not number <= float(step.at_most):
        return f"{what} is {number:g}, more than {float(step.at_most):g}"
    if step.at_least is not None and not number >= float(step.at_least):
        return f"{what} is {number:g}, less than {float(step.at_least):g}"
    return ""


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:297]}..."
