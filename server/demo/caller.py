"""A client's calls, shown with their answers and counted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp_types as types

from ..screen import Screen

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["Answer", "Caller", "Tally", "as_call"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as clients show it to a model: the structured content where there is one, else the text."""

    text: str
    fields: Mapping[str, Any]
    is_error: bool
    elapsed_s: float


@dataclass(slots=True)
class Tally:
    """What the calls of one tool came to."""

    calls: int = 0
    characters: int = 0
    elapsed_s: float = 0.0

    def add(self, characters: int, elapsed_s: float) -> None:
        self.calls += 1
        self.characters += characters
        self.elapsed_s += elapsed_s


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls tools over one client; every call and its answer go to the screen."""

    client: Client
    screen: Screen
    tallies: dict[str, Tally] = field(default_factory=dict)

    async def list_tools(self) -> tuple[str, ...]:
        """Names of the tools, counted but not shown: the list is for the model, not for a reader."""
        started = time.perf_counter()
        tools = (await self.client.list_tools()).tools
        elapsed_s = time.perf_counter() - started
        listed = json.dumps(
            [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        )
        self._count("tools/list", len(listed), elapsed_s)
        return tuple(tool.name for tool in tools)

    async def __call__(self, tool: str, /, **arguments: Any) -> Answer:
        self.screen.call(as_call(tool, arguments))
        started = time.perf_counter()
        result = await self.client.call_tool(tool, arguments)
        answer = read_answer(result, time.perf_counter() - started)
        self._count(tool, len(answer.text), answer.elapsed_s)
        shown = _a_line_a_field(answer.fields) if answer.fields else answer.text
        self.screen.answer(shown, answer.elapsed_s, len(answer.text))
        return answer

    def rows(self) -> Iterator[tuple[str, int, int, float]]:
        """Tool, calls, characters, seconds; the sum last."""
        yield from ((tool, one.calls, one.characters, one.elapsed_s) for tool, one in self.tallies.items())
        every = self.tallies.values()
        yield (
            "all",
            sum(one.calls for one in every),
            sum(one.characters for one in every),
            sum(one.elapsed_s for one in every),
        )

    def _count(self, tool: str, characters: int, elapsed_s: float) -> None:
        self.tallies.setdefault(tool, Tally()).add(characters, elapsed_s)


def read_answer(result: types.CallToolResult, elapsed_s: float) -> Answer:
    texts = [part.text for part in result.content if isinstance(part, types.TextContent)]
    fields = result.structured_content or {}
    text = json.dumps(fields, ensure_ascii=False) if fields else "\n".join(texts)
    return Answer(text, fields, bool(result.is_error), elapsed_s)


def as_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """`run_on_mesh(mesh="mesh-demo-k3f", wait_s=2)`."""
    words = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"{tool}({', '.join(words)})"


def _a_line_a_field(fields: Mapping[str, Any]) -> str:
    """The same JSON with one top-level field a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "{" + ",\n ".join(lines) + "}"
