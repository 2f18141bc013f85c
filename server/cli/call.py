"""`milkweed call TOOL key=value ...`: any tool, with the checks that an agent's call gets."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.errors import InvalidArgument
from .printing import print_answer
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "parse_pairs", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tool", help="such as list_meshes; docs/tools.md lists all")
    parser.add_argument("arguments", nargs="*", metavar="key=value", help="values are JSON where they can be")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        tool = session.registry.find(arguments.tool)
        given = parse_pairs(arguments.arguments, tool.arguments.schema["properties"])
        print_answer(await session.tool(arguments.tool, **given), arguments.output)
        return 0

    return run_session(work)


def parse_pairs(pairs: Sequence[str], properties: Mapping[str, Any]) -> dict[str, Any]:
    """`key=value` words as arguments: JSON where it is JSON, else text, and text where only text will do:
    `command=true` is the command.

    Raises:
        InvalidArgument: a word without an equals sign.
    """
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgument(
                "invalid_argument", f"{pair!r} is not key=value", "Write hosts=2 name=demo."
            )
        given[name] = _value(value, properties.get(name, {}))
    return given


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    kinds = {kind.get("type") for kind in schema.get("anyOf", (schema,))}
    if kinds == {"string"}:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if kinds == {"string", "array"} and not isinstance(value, list) else value
