"""Fixtures that ask before they answer: without sessions a question is a result, and the call is made again.

State that comes back has been through the SDK's boundary, which refuses what it did not seal: see `serving`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext

__all__ = ["TOOLS", "get_prompt"]

Context = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult
Answers = Mapping[str, Any]


def _question(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _sampling(text: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


_NAME = {"user_name": _question("What is your name?", "name")}
_CAPITAL = {"capital_question": _sampling("What is the capital of France?", 100)}
_ROOTS = {"client_roots": types.ListRootsRequest(params=types.RequestParams())}
_CONFIRM = {"confirm": _question("Please confirm", "ok", "boolean")}
_EVERYTHING = {**_NAME, "greeting": _sampling("Generate a greeting", 50), **_ROOTS}
_CONTEXT = {"user_context": _question("What context should the prompt use?", "context")}
_STEPS = (
    {"step1": _question("Step 1: What is your name?", "name")},
    {"step2": _question("Step 2: What is your favorite color?", "color")},
)


def _ask(requests: Mapping[str, Any], state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=dict(requests), request_state=state)


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


def _fields(answers: Answers, key: str) -> Mapping[str, Any]:
    """Of a form that was accepted."""
    answer = answers.get(key)
    return (answer.content or {}) if isinstance(answer, types.ElicitResult) else {}


def _tool(
    requests: Mapping[str, Any], complete: Callable[[Answers], str | None], state: str | None = None
) -> Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]:
    """Asks until the answers are `complete` and the state is what it sent."""

    async def tool(context: Context, params: types.CallToolRequestParams) -> Result:
        text = complete(params.input_responses or {}) if params.request_state == state else None
        return _ask(requests, state) if text is None else _text(text)

    return tool


def _greet(answers: Answers) -> str | None:
    name = _fields(answers, "user_name").get("name")
    return f"Hello, {name}!" if name else None


def _sampled(answers: Answers) -> str | None:
    answer = answers.get("capital_question")
    return answer.content.text if isinstance(answer, types.CreateMessageResult) else None  # type: ignore[union-attr]


def _rooted(answers: Answers) -> str | None:
    answer = answers.get("client_roots")
    return (
        ", ".join(str(root.uri) for root in answer.roots)
        if isinstance(answer, types.ListRootsResult)
        else None
    )


def _confirmed(answers: Answers) -> str | None:
    return "state-ok" if _fields(answers, "confirm").get("ok") else None


def _all(answers: Answers) -> str | None:
    found = _greet(answers), _rooted(answers)
    return f"{found[0]} {found[1]}" if all(found) and "greeting" in answers else None


async def _multi_round(context: Context, params: types.CallToolRequestParams) -> Result:
    answers, state = params.input_responses or {}, params.request_state or ""
    if name := _fields(answers, "step1").get("name"):
        return _ask(_STEPS[1], f"name={name}")
    if state.startswith("name=") and (color := _fields(answers, "step2").get("color")):
        return _text(f"{state.removeprefix('name=')} likes {color}")
    return _ask(_STEPS[0], "asked for a name")


async def _what_the_client_can(context: Context, params: types.CallToolRequestParams) -> Result:
    can = context.session.client_capabilities or types.ClientCapabilities()
    asked = (_NAME if can.elicitation else {}) | (_CAPITAL if can.sampling else {})
    return _ask(asked) if asked else _text("This client can be asked nothing.")


async def get_prompt(
    params: types.GetPromptRequestParams,
) -> types.GetPromptResult | types.InputRequiredResult:
    context = _fields(params.input_responses or {}, "user_context").get("context")
    if not context:
        return _ask(_CONTEXT)
    message = types.PromptMessage(role="user", content=types.TextContent(text=f"Context: {context}"))
    return types.GetPromptResult(messages=[message])


TOOLS: Mapping[str, Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]] = {
    "elicitation": _tool(_NAME, _greet),
    "sampling": _tool(_CAPITAL, _sampled),
    "list_roots": _tool(_ROOTS, _rooted),
    "request_state": _tool(_CONFIRM, _confirmed, "asked to confirm"),
    "multiple_inputs": _tool(_EVERYTHING, _all, "asked for everything"),
    "multi_round": _multi_round,
    "tampered_state": _tool(_CONFIRM, _confirmed, "must come back as it went"),
    "capabilities": _what_the_client_can,
}
