"""Names for what differs from one session to the next: ids and paths. Pure.

A transcript says `${run1}` where the session had `run-7qd`. Whoever records gives a name at first sight;
whoever replays binds the same name to what the live answer has in the same place, and puts that into what is
asked later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["Names", "mapped", "names_in"]

# Fields of answers that hold an id, and the one id that is told in words alone.
_KINDS = ("mesh", "run", "job", "mount")
_PLAN = re.compile(r"\bplan-[a-z0-9]{5,12}\b")
_NAME = re.compile(r"\$\{(\w+)\}")


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same JSON value with every string in it changed; keys too, which may be ids."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return value


def names_in(value: Any) -> Iterator[str]:
    """The names that a recorded value has, each as often as it comes."""
    for text in _strings(value):
        yield from _NAME.findall(text)


class Names:
    """What is bound so far."""

    def __init__(self, paths: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, str] = {}
        self._by_value: dict[str, str] = {}
        for name, value in (paths or {}).items():
            self.bind(name, value)

    def bind(self, name: str, value: str) -> None:
        self._values[name] = value
        if value:
            self._by_value.setdefault(value, name)

    def value(self, name: str) -> str | None:
        return self._values.get(name)

    def find(self, answer: Any) -> None:
        """Gives names to the ids that an answer tells and that have none."""
        for kind, value in _ids(answer):
            if value not in self._by_value:
                number = 1 + sum(re.fullmatch(rf"{kind}\d+", name) is not None for name in self._values)
                self.bind(f"{kind}{number}", value)

    def abstract(self, value: Any) -> Any:
        """The value with names in the place of all that has one."""
        if not self._by_value:
            return value
        every = "|".join(re.escape(known) for known in sorted(self._by_value, key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w-])(?:{every})(?![\w-])")
        return mapped(value, lambda text: pattern.sub(lambda it: f"${{{self._by_value[it[0]]}}}", text))

    def concrete(self, value: Any) -> Any:
        """The value with what is bound in the place of names; a name that is not bound stays."""
        return mapped(
            value, lambda text: _NAME.sub(lambda found: self._values.get(found[1], found[0]), text)
        )

    def unbound(self, value: Any) -> list[str]:
        return [name for name in dict.fromkeys(names_in(value)) if name not in self._values]

    def learn(self, recorded: Any, live: Any) -> None:
        """Binds names of a recorded answer that are not bound yet: to what the live one has in their place,
        else, in the order in which they come, to its ids of the same kind."""
        self._learn_fields(recorded, live)
        free: dict[str, list[str]] = {}
        for kind, value in _ids(live):
            if value not in self._by_value:
                free.setdefault(kind, []).append(value)
        for name in self.unbound(recorded):
            values = free.get(name.rstrip("0123456789"))
            if values:
                self.bind(name, values.pop(0))

    def _learn_fields(self, recorded: Any, live: Any) -> None:
        if isinstance(recorded, str) and isinstance(live, str):
            if (name := _NAME.fullmatch(recorded)) and name[1] not in self._values:
                self.bind(name[1], live)
        elif isinstance(recorded, Mapping) and isinstance(live, Mapping):
            for key, item in recorded.items():
                if key in live:
                    self._learn_fields(item, live[key])
        elif isinstance(recorded, list) and isinstance(live, list):
            for one, other in zip(recorded, live, strict=False):
                self._learn_fields(one, other)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _ids(answer: Any) -> Iterator[tuple[str, str]]:
    """Ids with their kinds, each once, in the order in which they come."""
    seen: set[str] = set()
    for kind, value in _all_ids(answer):
        if value not in seen:
            seen.add(value)
            yield kind, value


def _all_ids(answer: Any) -> Iterator[tuple[str, str]]:
    if isinstance(answer, str):
        yield from (("plan", found) for found in _PLAN.findall(answer))
    elif isinstance(answer, Mapping):
        for key, item in answer.items():
            if key in _KINDS and isinstance(item, str) and item.startswith(f"{key}-"):
                yield key, item
            else:
                yield from _all_ids(item)
    elif isinstance(answer, list | tuple):
        for item in answer:
            yield from _all_ids(item)
