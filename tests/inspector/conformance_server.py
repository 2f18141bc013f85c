"""What the conformance suite wants to find on a server, offered by Milkweed's own application factory.

`python -m tests.inspector.conformance_server` serves it over HTTP and prints where. Names, texts and schemas
are those that the suite's scenarios prescribe.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged

from milkweed.server.app import Offer, make_server
from milkweed.server.handling import Context
from milkweed.server.http import bind, serve_http
from milkweed.server.subscriptions import Subscriptions
from tests.fakes import FakeMeshes

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
KEY = secrets.token_bytes(16)
Result = types.CallToolResult | types.InputRequiredResult
ToolFunction = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]


def text(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=words)])


def image() -> types.ImageContent:
    return types.ImageContent(data=PNG, mime_type="image/png")


def embedded(uri: str, kind: str, words: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=kind, text=words))


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def elicit(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(words: str, most: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=words))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=most)
    )


A_NAME = an_object("name", name={"type": "string"})
NAME = elicit("What is your name?", A_NAME)


def sign(words: str) -> str:
    return f"{words}.{hmac.new(KEY, words.encode(), hashlib.sha256).hexdigest()}"


def signed(state: str | None) -> str:
    """
    Raises:
        MCPError: somebody changed it.
    """
    words = (state or "").rpartition(".")[0]
    if not state or not hmac.compare_digest(state, sign(words)):
        raise MCPError(types.INVALID_PARAMS, "the request state is not what this server gave")
    return words


def needs(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def given(params: Any, name: str) -> Any:
    """The answer to an input request, as JSON; None where there is none of that name."""
    found = (params.input_responses or {}).get(name)
    return found.model_dump(mode="json", by_alias=True) if hasattr(found, "model_dump") else found


def answered(params: Any, name: str, field: str) -> Any:
    content = (given(params, name) or {}).get("content")
    return content.get(field) if isinstance(content, dict) else None


ARGUMENTS = {
    "test_sampling": an_object("prompt", prompt={"type": "string"}),
    "test_elicitation": an_object("message", message={"type": "string"}),
}


class Tools:
    """The tool `test_NAME` is the method `tool_NAME`; arguments of those that take any are in ARGUMENTS."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        names = sorted(name.removeprefix("tool_") for name in dir(self) if name.startswith("tool_"))
        self._tools: dict[str, ToolFunction] = {
            f"test_{name}": getattr(self, f"tool_{name}") for name in names
        }

    async def list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=f"{name} of the suite",
                    input_schema=ARGUMENTS.get(name) or an_object(),
                )
                for name in self._tools
            ]
        )

    async def call(self, context: Context, params: types.CallToolRequestParams) -> Result:
        if params.name not in self._tools:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name}")
        return await self._tools[params.name](context, params)

    async def tool_simple_text(self, _: Context, __: types.CallToolRequestParams) -> Result:
        return text("This is a simple text response for testing.")

    async def tool_image_content(self, _: Context, __: types.CallToolRequestParams) -> Result:
        return types.CallToolResult(content=[image()])

    async def tool_audio_content(self, _: Context, __: types.CallToolRequestParams) -> Result:
        return types.CallToolResult(content=[types.AudioContent(data=WAV, mime_type="audio/wav")])

    async def tool_embedded_resource(self, _: Context, __: types.CallToolRequestParams) -> Result:
        words = "This is an embedded resource content."
        return types.CallToolResult(content=[embedded("test://embedded-resource", "text/plain", words)])

    async def tool_multiple_content_types(self, _: Context, __: types.CallToolRequestParams) -> Result:
        data = json.dumps({"test": "data", "value": 123})
        return types.CallToolResult(
            content=[
                types.TextContent(text="Multiple content types test:"),
                image(),
                embedded("test://mixed-content-resource", "application/json", data),
            ]
        )

    async def tool_error_handling(self, _: Context, __: types.CallToolRequestParams) -> Result:
        words = "This tool intentionally returns an error for testing"
        return types.CallToolResult(content=[types.TextContent(text=words)], is_error=True)

    async def tool_tool_with_logging(self, context: Context, _: types.CallToolRequestParams) -> Result:
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await context.session.send_log_message("info", words, related_request_id=context.request_id)  # type: ignore[deprecated]
            await anyio.sleep(0.05)  # prescribed
        return text("logged")

    tool_logging_tool = tool_tool_with_logging

    async def tool_tool_with_progress(self, context: Context, _: types.CallToolRequestParams) -> Result:
        for done in (0, 50, 100):
            await context.session.report_progress(done, 100)
            await anyio.sleep(0.05)  # prescribed
        return text("done")

    async def tool_sampling(self, context: Context, params: types.CallToolRequestParams) -> Result:
        asked = sample(str((params.arguments or {})["prompt"])).params
        found = await context.session.create_message(  # type: ignore[deprecated]
            asked.messages, max_tokens=asked.max_tokens, related_request_id=context.request_id
        )
        return text(f"LLM response: {getattr(found.content, 'text', '')}")

    async def tool_elicitation(self, context: Context, params: types.CallToolRequestParams) -> Result:
        schema = an_object(
            "username",
            "email",
            username={"type": "string", "description": "User's response"},
            email={"type": "string", "description": "User's email address"},
        )
        return await self._elicited(
            context, str((params.arguments or {})["message"]), schema, "User response"
        )

    async def tool_elicitation_sep1034_defaults(
        self, context: Context, _: types.CallToolRequestParams
    ) -> Result:
        schema = an_object(
            name={"type": "string", "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        )
        return await self._elicited(context, "Defaults", schema, "Elicitation completed")

    async def tool_elicitation_sep1330_enums(
        self, context: Context, _: types.CallToolRequestParams
    ) -> Result:
        options = ["option1", "option2", "option3"]
        numbered = [(f"value{n}", word) for n, word in enumerate(("First", "Second", "Third"), 1)]
        titled = [{"const": value, "title": f"{word} Option"} for value, word in numbered]
        choices = [{"const": value, "title": f"{word} Choice"} for value, word in numbered]
        schema = an_object(
            untitledSingle={"type": "string", "enum": options},
            titledSingle={"type": "string", "oneOf": titled},
            legacyEnum={
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
            titledMulti={"type": "array", "items": {"anyOf": choices}},
        )
        return await self._elicited(context, "Enums", schema, "Elicitation completed")

    async def _elicited(self, context: Context, message: str, schema: dict[str, Any], words: str) -> Result:
        found = await context.session.elicit_form(message, schema, context.request_id)
        return text(f"{words}: action={found.action}, content={json.dumps(found.content)}")

    async def tool_missing_capability(self, context: Context, _: types.CallToolRequestParams) -> Result:
        declared = context.session.client_capabilities
        if declared is None or declared.sampling is None:
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "this tool needs the client's sampling",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return text("sampling was declared")

    async def tool_streaming_elicitation(
        self, context: Context, params: types.CallToolRequestParams
    ) -> Result:
        await context.session.report_progress(1, 2)
        return await self.tool_input_required_result_elicitation(context, params)

    async def tool_trigger_tool_change(self, _: Context, __: types.CallToolRequestParams) -> Result:
        await self._subscriptions.publish(ToolsListChanged())
        return text("told")

    async def tool_trigger_prompt_change(self, _: Context, __: types.CallToolRequestParams) -> Result:
        await self._subscriptions.publish(PromptsListChanged())
        return text("told")

    async def tool_input_required_result_elicitation(
        self, _: Context, params: types.CallToolRequestParams
    ) -> Result:
        name = answered(params, "user_name", "name")
        return text(f"Hello, {name}!") if isinstance(name, str) else needs(user_name=NAME)

    async def tool_input_required_result_sampling(
        self, _: Context, params: types.CallToolRequestParams
    ) -> Result:
        answer = given(params, "capital_question")
        return (
            text(json.dumps(answer))
            if answer
            else needs(capital_question=sample("What is the capital of France?"))
        )

    async def tool_input_required_result_list_roots(
        self, _: Context, params: types.CallToolRequestParams
    ) -> Result:
        answer = given(params, "client_roots")
        return text(json.dumps(answer)) if answer else needs(client_roots=types.ListRootsRequest())

    async def tool_input_required_result_request_state(
        self, _: Context, params: types.CallToolRequestParams
    ) -> Result:
        if params.input_responses is None:
            ask = elicit("Please confirm", an_object("ok", ok={"type": "boolean"}))
            return needs(sign("confirm"), confirm=ask)
        return text(f"state-ok {signed(params.request_state)}")

    async def tool_input_required_result_tampered_state(
        self, context: Context, params: types.CallToolRequestParams
    ) -> Result:
        return await self.tool_input_required_result_request_state(context, params)

    async def tool_input_required_result_multiple_inputs(
        self, _: Context, params: types.CallToolRequestParams
    ) -> Result:
        wanted = ("user_name", "greeting", "client_roots")
        if all(given(params, one) for one in wanted):
            return text(f"all there, {signed(params.request_state)}")
        asked = {"greeting": sample("Generate a greeting", 50), "client_roots": types.ListRootsRequest()}
        return needs(sign("several"), user_name=NAME, **asked)

    async def tool_input_required_result_multi_round(
        self, _: Context, params: types.CallToolRequestParams
    ) -> Result:
        state = signed(params.request_state) if params.request_state else ""
        if not state:
            return needs(
                sign("1"),
                step1=elicit("Step 1: What is your name?", an_object("name", name={"type": "string"})),
            )
        if state == "1":
            colour = an_object("color", color={"type": "string"})
            name = answered(params, "step1", "name")
            return needs(sign(f"2 {name}"), step2=elicit("Step 2: What is your favorite color?", colour))
        return text(f"{state.removeprefix('2 ')} likes {answered(params, 'step2', 'color')}")

    async def tool_input_required_result_capabilities(
        self, context: Context, _: types.CallToolRequestParams
    ) -> Result:
        declared = context.session.client_capabilities or types.ClientCapabilities()
        asked: dict[str, Any] = {}
        if declared.sampling is not None:
            asked["question"] = sample("Say something")
        if declared.elicitation is not None:
            asked["user_name"] = NAME
        return needs(**asked) if asked else text("nothing can be asked")


class Resources:
    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscribed: set[str] = set()
        self._subscriptions = subscriptions

    async def list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"test://{name}", name=name, description=f"{name} of the suite", mime_type=kind
                )
                for name, kind in kinds.items()
            ]
        )

    async def list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="data", uri_template="test://template/{id}/data", mime_type="application/json"
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        found: types.TextResourceContents | types.BlobResourceContents
        if uri == "test://static-binary":
            found = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        elif uri in ("test://static-text", "test://watched-resource"):
            words = "This is the content of the static text resource."
            found = types.TextResourceContents(uri=uri, mime_type="text/plain", text=words)
        elif match := re.fullmatch(r"test://template/([^/]+)/data", uri):
            data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
            found = types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
        else:
            raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
        return types.ReadResourceResult(contents=[found])

    async def subscribe(self, _: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self._subscribed.add(str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(self, _: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._subscribed.discard(str(params.uri))
        return types.EmptyResult()


PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


class Prompts:
    async def list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=name,
                    description=f"{name} of the suite",
                    arguments=[types.PromptArgument(name=one, required=True) for one in arguments],
                )
                for name, arguments in PROMPTS.items()
            ]
        )

    async def get(
        self, _: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        arguments = params.arguments or {}
        match params.name:
            case "test_simple_prompt":
                return self._said(types.TextContent(text="This is a simple prompt for testing."))
            case "test_prompt_with_arguments":
                words = f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"
                return self._said(types.TextContent(text=words))
            case "test_prompt_with_embedded_resource":
                words = "Embedded resource content for testing."
                return self._said(
                    embedded(arguments["resourceUri"], "text/plain", words),
                    types.TextContent(text="Please process the embedded resource above."),
                )
            case "test_prompt_with_image":
                return self._said(image(), types.TextContent(text="Please analyze the image above."))
            case "test_input_required_result_prompt":
                wanted = answered(params, "user_context", "context")
                if wanted is not None:
                    return self._said(types.TextContent(text=f"Use {wanted}"))
                schema = an_object("context", context={"type": "string"})
                return needs(user_context=elicit("What context should the prompt use?", schema))
        raise MCPError(types.INVALID_PARAMS, f"no prompt {params.name}")

    def _said(self, *contents: Any) -> types.GetPromptResult:
        return types.GetPromptResult(
            messages=[types.PromptMessage(role="user", content=content) for content in contents]
        )


class Completions:
    async def complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = [one for one in ("paris", "park", "party") if one.startswith(params.argument.value)]
        return types.CompleteResult(
            completion=types.Completion(values=values, total=len(values), has_more=False)
        )


async def main() -> None:
    warnings.simplefilter("ignore")
    subscriptions = Subscriptions()
    offer = Offer(Tools(subscriptions), Resources(subscriptions), Prompts(), Completions(), subscriptions)
    server = make_server(offer, FakeMeshes().open)  # type: ignore[arg-type]

    async def set_level(_: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
        return types.EmptyResult()

    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    await serve_http(server, bind("127.0.0.1", 0), lambda url: print(url, flush=True))


if __name__ == "__main__":
    asyncio.run(main())
