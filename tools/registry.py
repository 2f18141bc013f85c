"""The declarative tool: one decorated function, and the registry that selects among them."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..runtime.errors import InvalidArgument, NotFound
from .arguments import Arguments
from .results import Result

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ..runtime.client import Meshes

__all__ = ["BUILT_IN", "DEFAULT", "ENTRY_POINTS", "Call", "Registry", "Text", "Tool", "tool"]

BUILT_IN = ("mesh", "run", "files", "debug", "train", "program", "amd")
DEFAULT = ("mesh", "run", "files", "debug")
ENTRY_POINTS = "milkweed.toolsets"
DESCRIPTION_LIMIT = 2048
# A line break inside a paragraph.
_WRAPPED = re.compile(r"(?<!\n)\n(?![\n -])")  # not of a list, or of a program that is shown


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is text to read: logs, files, stacks. It has no structured twin."""

    text: str


Report = Callable[[float, float | None, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool gets besides its arguments.

    `report(done, total, message)` tells the caller how far the work is; `principal` is who calls.
    """

    meshes: Meshes
    report: Report
    principal: str = ""


Answer = Result | Text
ToolFunction = Callable[..., Awaitable[Answer]]


@dataclass(frozen=True)
class Tool:
    """A tool as the agent sees it, and the function behind it."""

    name: str
    toolset: str
    description: str
    function: ToolFunction
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool

    @cached_property
    def arguments(self) -> Arguments:
        return Arguments(self.name, self.function)

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()

    async def __call__(self, call: Call, given: Mapping[str, Any]) -> Answer:
        """Checks the arguments and runs the tool.

        Raises:
            MilkweedError: arguments are wrong, or what the tool itself raises.
        """
        return await self.function(call, **self.arguments.check(given))


def tool(
    toolset: str,
    *,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
) -> Callable[[ToolFunction], Tool]:
    """Makes a tool of an async function; its name, docstring and annotated parameters are the declaration.

    The first parameter is the `Call`. `destructive`: it ends or removes something; `idempotent`: repeating it
    changes nothing more; `open_world`: it runs code or reaches things that Milkweed does not know.

    Raises:
        ValueError: there is no docstring, or one that clients would cut.
    """

    def declare(function: ToolFunction) -> Tool:
        name = getattr(function, "__name__", "")
        description = _WRAPPED.sub(" ", inspect.cleandoc(function.__doc__ or ""))
        if not description or len(description.encode()) >= DESCRIPTION_LIMIT:
            raise ValueError(f"the docstring of {name} must have 1 to {DESCRIPTION_LIMIT} bytes")
        return Tool(
            name=name,
            toolset=toolset,
            description=description,
            function=function,
            read_only=read_only,
            destructive=destructive,
            idempotent=idempotent or read_only,
            open_world=open_world,
        )

    return declare


class Registry:
    """The tools that a server offers."""

    def __init__(
        self, tools: Iterable[Tool], *, read_only: bool = False, other_toolsets: Sequence[str] = ()
    ) -> None:
        every = _by_name(tools)
        self.tools = tuple(item for item in every.values() if item.read_only or not read_only)
        self.toolsets = tuple(dict.fromkeys(item.toolset for item in every.values()))
        self._offered = {item.name: item for item in self.tools}
        self._withheld = every.keys() - self._offered.keys()
        self._other_toolsets = tuple(other_toolsets)

    @classmethod
    def load(cls, toolsets: str = "default", *, read_only: bool = False) -> Registry:
        """Imports the toolsets named in `toolsets`: comma-separated names, "default" or "all".

        Plugins are looked up only where they are asked for, and a broken one is a warning on stderr.

        Raises:
            InvalidArgument: a name that is no toolset.
        """
        names = [name.strip() for name in toolsets.split(",") if name.strip()]
        wanted = dict.fromkeys(name for item in names for name in (DEFAULT if item == "default" else (item,)))
        if wanted and wanted.keys() <= set(BUILT_IN):
            left = [name for name in BUILT_IN if name not in wanted]
            return cls(_built_in(wanted), read_only=read_only, other_toolsets=left)
        plugins = _entry_points()
        known = (*BUILT_IN, *(name for name in plugins if name not in BUILT_IN))
        unknown = [name for name in wanted if name not in known and name != "all"]
        if unknown or not wanted:
            what = f"no toolset {unknown[0]!r}" if unknown else "no toolset named"
            raise InvalidArgument(
                "invalid_argument",
                f"{what}; toolsets: {', '.join(known)}, default, all",
                "Name some of those.",
            )
        chosen = known if "all" in wanted else tuple(wanted)
        tools = _built_in(name for name in chosen if name in BUILT_IN)
        for name in chosen:
            if name in plugins:
                tools += _from_plugin(plugins[name], taken=tools)
        return cls(tools, read_only=read_only, other_toolsets=[name for name in known if name not in chosen])

    def find(self, name: str) -> Tool:
        """The tool of that name.

        Raises:
            NotFound: no such tool.
            InvalidArgument: the tool changes something and this server is read-only.
        """
        if name in self._offered:
            return self._offered[name]
        if name in self._withheld:
            raise InvalidArgument(
                "unsupported",
                f"{name} changes something, and this server was started with --read-only",
                f"Tools here: {', '.join(self._offered)}.",
            )
        from difflib import get_close_matches

        close = get_close_matches(name, self._offered, n=1, cutoff=0.6)
        hint = f"Did you mean {close[0]}?" if close else f"Tools: {', '.join(self._offered)}."
        if self._other_toolsets:
            hint += f" More with serve --toolsets: {', '.join(self._other_toolsets)}."
        raise NotFound("tool_not_found", f"no tool '{name[:60]}'", hint)


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for item in tools:
        if item.name in named:
            both = f"{named[item.name].toolset} and {item.toolset}"
            raise ValueError(f"two tools are named {item.name}: in {both}")
        named[item.name] = item
    return named


def _tools_in(source: object) -> list[Tool]:
    """Tools of a module, or of an iterable of tools."""
    items = vars(source).values() if inspect.ismodule(source) else source
    if not isinstance(items, Iterable):
        raise TypeError(f"expected a module or an iterable of tools, found {type(source).__name__}")
    found = [item for item in items if isinstance(item, Tool)]
    if not found:
        raise ValueError("there is no tool in it")
    return found


def _built_in(names: Iterable[str]) -> list[Tool]:
    package = __name__.rpartition(".")[0]
    return [item for name in names for item in _tools_in(importlib.import_module(f"{package}.{name}"))]


def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _from_plugin(point: EntryPoint, taken: Sequence[Tool]) -> list[Tool]:
    """The plugin's tools, under the entry point's name; none, and a warning, if anything is wrong with it."""
    try:
        if point.name in BUILT_IN:
            raise ValueError(f"the toolset name {point.name} is Milkweed's own")
        tools = [replace(item, toolset=point.name) for item in _tools_in(point.load())]
        _by_name([*taken, *tools])
        for item in tools:
            item.arguments.schema  # noqa: B018  a signature that cannot be described must not break tools/list
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        sys.stderr.write(f"milkweed: toolset {point.name} ({point.value}) is left out: {why}\n")
        return []
    return tools
