"""Fixture tools that a toolset can have: they go through the registry and `ToolCalls` as Milkweed's own."""

from __future__ import annotations

from milkweed.runtime.errors import InvalidArgument
from milkweed.tools.registry import Call, Registry, Text, tool

__all__ = ["ERROR_TEXT", "SIMPLE_TEXT", "registry"]

SIMPLE_TEXT = "This is a simple text response for testing."
ERROR_TEXT = "This tool intentionally returns an error for testing"


@tool("conformance", read_only=True)
async def test_simple_text(call: Call) -> Text:
    """Answers with text."""
    return Text(SIMPLE_TEXT)


@tool("conformance", read_only=True)
async def test_error_handling(call: Call) -> Text:
    """Fails."""
    raise InvalidArgument("invalid_argument", ERROR_TEXT, "There is nothing to mend.")


@tool("conformance", read_only=True)
async def test_tool_with_progress(call: Call) -> Text:
    """Reports three times how far it is."""
    for done in (0, 50, 100):
        await call.report(done, 100, f"{done} of 100")
    return Text("Done.")


@tool("conformance", read_only=True)
async def test_logging_tool(call: Call) -> Text:
    """Logs nothing to a client that did not ask for it."""
    return Text("Done.")


def registry() -> Registry:
    return Registry([test_simple_text, test_error_handling, test_tool_with_progress, test_logging_tool])
