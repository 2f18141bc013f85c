"""Logs of Claude Code, read: JSON Lines below `~/.claude/projects/`. Pure.

Its makers document that such logs are kept, not their lines. What is read here is what is publicly known of
versions 1 and 2 (projects that read them, and their examples): `type` is `user` or `assistant`; `message` is
one of the Messages API, with blocks `text`, `tool_use` (`id`, `name`, `input`) and `tool_result`
(`tool_use_id`, `content`, `is_error`); `timestamp` is ISO 8601; `toolUseResult` beside a result has what its
tool knows, such as `originalFile` of an edited file. Tools of MCP servers are named `mcp__SERVER__TOOL`.
Everything else is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...runtime.errors import InvalidArgument

__all__ = ["Log", "Said", "ToolUse", "mcp_tool", "read_log"]


@dataclass(frozen=True, slots=True)
class Said:
    """Words of the agent, or (`by_user`) what it was asked."""

    text: str
    by_user: bool = False


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that was answered. `known` is what the log has of it beside the answer."""

    name: str
    arguments: Mapping[str, Any]
    text: str
    is_error: bool
    duration_s: float
    known: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """In the order in which it happened: a call stands where its answer came. `version` is the program's,
    `directory` where it was started; `unanswered` calls are left out."""

    entries: tuple[Said | ToolUse, ...]
    version: str = ""
    directory: str = ""
    unanswered: int = 0


def read_log(text: str, name: str = "the log") -> Log:
    """A last line that is cut is passed over: the session may still go on.

    Raises:
        InvalidArgument: log_unreadable, with the line.
    """
    entries: list[Said | ToolUse] = []
    calls: dict[str, tuple[Mapping[str, Any], float]] = {}
    seen: set[str] = set()
    version = directory = ""
    for line in _lines(text, name):
        uuid = line.get("uuid")
        if line.get("isSidechain") or line.get("isMeta") or (isinstance(uuid, str) and uuid in seen):
            continue  # of another agent; of the program itself; of a session that was taken up again
        if isinstance(uuid, str):
            seen.add(uuid)
        version, directory = version or _text(line, "version"), directory or _text(line, "cwd")
        at = _seconds(_text(line, "timestamp"))
        for block in _blocks(line):
            match block.get("type"):
                case "text":
                    words = _text(block, "text").strip()
                    if words:
                        entries.append(Said(words, by_user=line["type"] == "user"))
                case "tool_use":
                    calls[_text(block, "id")] = block, at
                case "tool_result":
                    call = calls.pop(_text(block, "tool_use_id"), None)
                    if call is not None:
                        entries.append(_use(*call, block, line, at))
    return Log(tuple(entries), version, directory, unanswered=len(calls))


def mcp_tool(name: str) -> str:
    """`allocate_mesh` of `mcp__milkweed__allocate_mesh`; empty for what is of no MCP server."""
    parts = name.split("__", 2)
    return parts[2] if len(parts) == 3 and parts[0] == "mcp" else ""


def _lines(text: str, name: str) -> Iterator[dict[str, Any]]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            if number == lines[-1][0] and not text.endswith("\n"):
                return
            raise _unreadable(f"line {number} of {name} is no JSON") from None
        if not isinstance(found, dict):
            raise _unreadable(f"line {number} of {name} is no object")
        if found.get("type") in ("user", "assistant") and isinstance(found.get("message"), dict):
            yield found


def _unreadable(cause: str) -> InvalidArgument:
    return InvalidArgument(
        "log_unreadable", cause, "Give a session of Claude Code: ~/.claude/projects/PROJECT/SESSION.jsonl."
    )


def _blocks(line: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    content = line["message"].get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _use(
    call: Mapping[str, Any], began: float, result: Mapping[str, Any], line: Mapping[str, Any], ended: float
) -> ToolUse:
    arguments, known = call.get("input"), line.get("toolUseResult")
    return ToolUse(
        name=_text(call, "name"),
        arguments=arguments if isinstance(arguments, dict) else {},
        text=_words(result.get("content")),
        is_error=bool(result.get("is_error")),
        duration_s=max(0.0, ended - began),
        known=known if isinstance(known, dict) else {},
    )


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(_text(part, "text") for part in parts if isinstance(part, dict))


def _text(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    return found if isinstance(found, str) else ""


def _seconds(timestamp: str) -> float:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0
