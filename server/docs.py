"""Writes docs/tools.md from what the server offers: `python -m milkweed.server.docs [--check] [FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from ..tools.registry import BUILT_IN, DEFAULT, Registry, Tool
from ..tools.results import Result
from .prompts import PROMPTS
from .resources import FORMS

__all__ = ["main", "render"]

_HEAD = """\
# Tools

<!-- Written by `python -m milkweed.server.docs`; do not edit. -->

What the server offers over MCP, by toolset. `milkweed serve --toolsets NAMES` chooses toolsets (default:
{default}); `--read-only` leaves out every tool that changes something.

Results that are *state* come structured, and what there is to read comes as text. A field of a result is left
out where it says nothing: where it would have its default. Times are in seconds.
"""


def render(registry: Registry) -> str:
    """The document: tools by toolset, the shapes of their results, then resources and prompts."""
    shapes = {shape.__name__: shape for tool in registry.tools if (shape := _result_of(tool)) is not None}
    lines = [_HEAD.format(default=", ".join(f"`{name}`" for name in DEFAULT))]
    for toolset in registry.toolsets:
        lines.append(f"## Toolset `{toolset}`\n")
        for tool in registry.tools:
            if tool.toolset == toolset:
                lines += _tool(tool)
    lines.append("## Shapes\n")
    for name in sorted(shapes):
        lines += _shape(name, shapes[name].model_json_schema())
    lines += _resources()
    lines += _prompts()
    return "\n".join(lines).rstrip() + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m milkweed.server.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is stale")
    parser.add_argument("file", nargs="?", type=Path, default=Path("docs/tools.md"))
    arguments = parser.parse_args(argv)
    text = render(Registry.load(",".join(BUILT_IN)))
    if not arguments.check:
        arguments.file.parent.mkdir(parents=True, exist_ok=True)
        arguments.file.write_text(text, encoding="utf-8")
        return 0
    if arguments.file.exists() and arguments.file.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{arguments.file} is stale; run: python -m milkweed.server.docs {arguments.file}\n")
    return 1


def _result_of(tool: Tool) -> type[Result] | None:
    answer = get_type_hints(tool.function)["return"]
    return answer if isinstance(answer, type) and issubclass(answer, Result) else None


def _tool(tool: Tool) -> Iterator[str]:
    shape = _result_of(tool)
    marks = [
        "read-only" if tool.read_only else "changes something",
        *(["destructive"] if tool.destructive else []),
        *(["safe to repeat"] if tool.idempotent and not tool.read_only else []),
        *(["runs code of yours"] if tool.open_world else []),
    ]
    yield f"### `{tool.name}`\n"
    yield f"{tool.description}\n"
    answer = f"[`{shape.__name__}`](#{shape.__name__.lower()})" if shape else "text"
    yield f"*{', '.join(marks)}* · answers {answer}\n"
    schema = tool.arguments.schema
    if not schema["properties"]:
        yield "No arguments.\n"
        return
    yield "| argument | type | default | |\n|---|---|---|---|"
    for name, item in schema["properties"].items():
        default = "required" if name in schema.get("required", ()) else _default(item)
        yield f"| `{name}` | {_type(item)} | {default} | {_cell(item.get('description', ''))} |"
        for inner, inner_item in item.get("properties", {}).items():
            described = _cell(inner_item.get("description", ""))
            yield f"| `{name}.{inner}` | {_type(inner_item)} | {_default(inner_item)} | {described} |"
    yield ""


def _shape(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    definitions = schema.get("$defs", {})
    yield "| field | type | |\n|---|---|---|"
    for field, item in schema["properties"].items():
        yield f"| `{field}` | {_type(item, definitions)} | {_cell(item.get('description', ''))} |"
        for inner, inner_item in _parts(item, definitions).items():
            described = _cell(inner_item.get("description", ""))
            yield f"| `{field}.{inner}` | {_type(inner_item, definitions)} | {described} |"
    yield ""


def _resources() -> Iterator[str]:
    yield "## Resources\n"
    yield (
        "`resources/list` names live meshes, their latest runs, profiles and transcripts. Clients hear of\n"
        "what comes and goes, and of a change of what they subscribed to (`resources/subscribe`, or\n"
        "`subscriptions/listen` from 2026-07-28 on). Ids are completed.\n"
    )
    yield "| address | type | |\n|---|---|---|"
    for form in FORMS:
        yield f"| `{form.template}` | `{form.mime_type}` | {_cell(form.description)} |"
    yield ""


def _prompts() -> Iterator[str]:
    yield "## Prompts\n"
    yield "| prompt | arguments | |\n|---|---|---|"
    for prompt in PROMPTS:
        names = (f"`{one.name}`" + ("" if one.required else " (optional)") for one in prompt.arguments)
        yield f"| `{prompt.name}` | {', '.join(names)} | {_cell(prompt.description)} |"
    yield ""


def _parts(item: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields of the object that a field holds, or holds a list of."""
    for candidate in (item, item.get("items", {}), *item.get("anyOf", ())):
        if "$ref" in candidate:
            parts: Mapping[str, Any] = definitions[candidate["$ref"].rsplit("/", 1)[-1]].get("properties", {})
            return parts
    return {}


def _type(item: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> str:
    if "$ref" in item:
        return "object"
    if "enum" in item:
        return ", ".join(f"`{value}`" for value in item["enum"])
    if "const" in item:
        return f"`{item['const']}`"
    if "anyOf" in item:
        kinds = [_type(part, definitions) for part in item["anyOf"] if part.get("type") != "null"]
        return " or ".join(kinds)
    kind = str(item.get("type", "any"))
    if kind == "array":
        return f"list of {_type(item.get('items', {}), definitions)}"
    return f"{kind}{_range(item)}"


def _range(item: Mapping[str, Any]) -> str:
    low = item.get("minimum", item.get("exclusiveMinimum"))
    high = item.get("maximum", item.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    above = ">" if "exclusiveMinimum" in item else ">="
    if high is None:
        return f" {above} {low:g}"
    return f" {low:g} to {high:g}" if above == ">=" else f" > {low:g}, at most {high:g}"


def _default(item: Mapping[str, Any]) -> str:
    return f"`{json.dumps(item['default'])}`" if "default" in item else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
