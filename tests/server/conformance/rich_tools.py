"""Fixture tools that no toolset can have: media, questions to the client, log messages, changes of lists."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import PromptsListChanged, SubscriptionBus, ToolsListChanged
from mcp.shared.exceptions import MCPError

from tests.server.conformance import input_required
from tests.server.conformance.media import PNG, WAV, embedded

__all__ = ["RichTools"]

Result = types.CallToolResult | types.InputRequiredResult
Context = ServerRequestContext[Any, Any]
Function = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]

_NO_ARGUMENTS = {"type": "object", "properties": {}}
_SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_TITLED = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
_OPTIONS = ["option1", "option2", "option3"]
_ENUMS = {
    "untitledSingle": {"type": "string", "enum": _OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}
_PERSON = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}


class RichTools:
    def __init__(self, bus: SubscriptionBus) -> None:
        self._bus = bus
        self._functions: dict[str, Function] = {
            "test_image_content": _answer(PNG),
            "test_audio_content": _answer(WAV),
            "test_embedded_resource": _answer(
                embedded("test://embedded-resource", "text/plain", "Embedded.")
            ),
            "test_multiple_content_types": _answer(
                types.TextContent(text="Multiple content types test:"),
                PNG,
                embedded(
                    "test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'
                ),
            ),
            "test_tool_with_logging": _log,
            "test_sampling": _sample,
            "test_elicitation": _elicit,
            "test_elicitation_sep1034_defaults": _elicit_form("Check the defaults", _DEFAULTS),
            "test_elicitation_sep1330_enums": _elicit_form("Choose", _ENUMS),
            "test_missing_capability": _need_sampling,
            "test_streaming_elicitation": _report_and_elicit,
            "test_trigger_tool_change": self._change_tools,
            "test_trigger_prompt_change": self._change_prompts,
            "json_schema_2020_12_tool": _answer(types.TextContent(text="Nothing to do.")),
            **{f"test_input_required_result_{name}": ask for name, ask in input_required.TOOLS.items()},
        }

    def list(self) -> list[types.Tool]:
        return [_describe(name) for name in self._functions]

    def find(self, name: str) -> Function | None:
        return self._functions.get(name)

    async def _change_tools(self, context: Context, _: types.CallToolRequestParams) -> Result:
        await self._bus.publish(ToolsListChanged())
        return _text("The list of tools counts as changed.")

    async def _change_prompts(self, context: Context, _: types.CallToolRequestParams) -> Result:
        await self._bus.publish(PromptsListChanged())
        return _text("The list of prompts counts as changed.")


def _describe(name: str) -> types.Tool:
    schema: Mapping[str, Any] = _SCHEMA_2020_12 if name == "json_schema_2020_12_tool" else _NO_ARGUMENTS
    if name in ("test_sampling", "test_elicitation"):
        argument = "prompt" if name == "test_sampling" else "message"
        schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return types.Tool(name=name, description=f"Fixture of the conformance suite: {name}", input_schema=schema)


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


def _answer(*content: types.ContentBlock) -> Function:
    async def answer(context: Context, _: types.CallToolRequestParams) -> Result:
        return types.CallToolResult(content=[*content])

    return answer


async def _log(context: Context, _: types.CallToolRequestParams) -> Result:
    for what in ("started", "processing data", "completed"):
        with warnings.catch_warnings(action="ignore"):  # the suite's handshake era still has it
            await context.session.send_log_message(
                "info", f"Tool {what}", related_request_id=context.request_id
            )
    return _text("Logged.")


async def _sample(context: Context, params: types.CallToolRequestParams) -> Result:
    prompt = types.TextContent(text=str((params.arguments or {}).get("prompt", "")))
    with warnings.catch_warnings(action="ignore"):  # as above
        answer = await context.session.create_message(
            [types.SamplingMessage(role="user", content=prompt)],
            max_tokens=100,
            related_request_id=context.request_id,
        )
    return _text(f"LLM response: {getattr(answer.content, 'text', answer.content)}")


async def _elicit(context: Context, params: types.CallToolRequestParams) -> Result:
    message = str((params.arguments or {}).get("message", ""))
    return await _ask(context, message, _PERSON, required=[*_PERSON])


def _elicit_form(message: str, properties: Mapping[str, Any]) -> Function:
    async def ask(context: Context, _: types.CallToolRequestParams) -> Result:
        return await _ask(context, message, properties, required=[])

    return ask


async def _ask(context: Context, message: str, properties: Mapping[str, Any], required: list[str]) -> Result:
    schema = {"type": "object", "properties": dict(properties), "required": required}
    answer = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return _text(f"Elicitation completed: action={answer.action}, content={answer.content}")


async def _need_sampling(context: Context, _: types.CallToolRequestParams) -> Result:
    needed = types.ClientCapabilities(sampling=types.SamplingCapability())
    if not context.session.check_client_capability(needed):
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "this tool needs sampling",
            {"requiredCapabilities": needed.model_dump(by_alias=True, mode="json", exclude_none=True)},
        )
    return _text("The client can sample.")


async def _report_and_elicit(context: Context, params: types.CallToolRequestParams) -> Result:
    await context.session.report_progress(1, 2, "about to ask")
    return await input_required.TOOLS["elicitation"](context, params)
