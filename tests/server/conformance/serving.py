"""`python -m tests.server.conformance.serving`: fixtures of the conformance suite, served as Milkweed is."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus

from milkweed.runtime.client import open_meshes
from milkweed.runtime.errors import NotFound
from milkweed.server.app import Handlers, assemble
from milkweed.server.explaining import in_words
from milkweed.server.http import bind, serve_http
from milkweed.server.prompts import Prompt, PromptArgument
from milkweed.server.subscriptions import Subscriptions
from milkweed.server.tool_calls import ToolCalls, describe_tool
from tests.server.conformance import input_required, plain_tools
from tests.server.conformance.media import PNG, embedded
from tests.server.conformance.rich_tools import RichTools

Context = ServerRequestContext[Any, Any]

_TEXT_URI, _BINARY_URI, _WATCHED_URI = "test://static-text", "test://static-binary", "test://watched-resource"
_TEMPLATE = "test://template/{id}/data"
_PROMPTS = {
    one.name: one
    for one in (
        Prompt(
            "test_simple_prompt",
            "Simple",
            "No arguments.",
            (),
            lambda _: "This is a simple prompt for testing.",
        ),
        Prompt(
            "test_prompt_with_arguments",
            "With arguments",
            "Two of them.",
            (
                PromptArgument("arg1", "the first", required=True),
                PromptArgument("arg2", "the second", required=True),
            ),
            lambda given: f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'",
        ),
    )
}
_OTHER_PROMPTS = (
    types.Prompt(
        name="test_prompt_with_embedded_resource",
        description="A resource in a message.",
        arguments=[types.PromptArgument(name="resourceUri", description="its address", required=True)],
    ),
    types.Prompt(name="test_prompt_with_image", description="An image in a message."),
    types.Prompt(name="test_input_required_result_prompt", description="Asks first."),
)


class Fixtures:
    """Handlers of every request. What a toolset can express goes through Milkweed's own."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._plain = plain_tools.registry()
        self._calls = ToolCalls(self._plain, "conformance", deadline_s=30, heartbeat_s=5, recorder=None)
        self._rich = RichTools(self.bus)

    async def list_tools(self, _: Context, __: Any) -> types.ListToolsResult:
        plain = [describe_tool(tool) for tool in self._plain.tools]
        return types.ListToolsResult(tools=[*plain, *self._rich.list()])

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        rich = self._rich.find(params.name)
        return await (rich or self._calls.call)(context, params)

    async def list_resources(self, _: Context, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(name="static text", uri=_TEXT_URI, mime_type="text/plain"),
                types.Resource(name="static binary", uri=_BINARY_URI, mime_type="image/png"),
                types.Resource(name="watched", uri=_WATCHED_URI, mime_type="text/plain"),
            ]
        )

    async def list_templates(self, _: Context, __: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(name="data", uri_template=_TEMPLATE, mime_type="application/json")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        with in_words(context.method, uri=uri):
            return types.ReadResourceResult(contents=[_read(uri)])

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        with in_words(context.method, uri=uri):
            _read(uri)
        return types.EmptyResult()

    async def unsubscribe(self, _: Context, __: types.UnsubscribeRequestParams) -> types.EmptyResult:
        return types.EmptyResult()

    async def list_prompts(self, _: Context, __: Any) -> types.ListPromptsResult:
        plain = [prompt.describe() for prompt in _PROMPTS.values()]
        return types.ListPromptsResult(prompts=[*plain, *_OTHER_PROMPTS])

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        given = params.arguments or {}
        match params.name:
            case "test_input_required_result_prompt":
                return await input_required.get_prompt(params)
            case "test_prompt_with_image":
                return _messages(PNG, "Please analyze the image above.")
            case "test_prompt_with_embedded_resource":
                text = "Embedded resource content for testing."
                resource = embedded(given["resourceUri"], "text/plain", text)
                return _messages(resource, "Please process the embedded resource above.")
        with in_words(context.method):
            if params.name not in _PROMPTS:
                raise NotFound("prompt_not_found", f"no prompt {params.name!r}", "prompts/list has them.")
            return _PROMPTS[params.name].get(given)

    async def complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = [value for value in ("paris", "park", "party") if value.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values)))


def _read(uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    if uri == _TEXT_URI:
        text = "This is the content of the static text resource."
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    if uri == _BINARY_URI:
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG.data)
    if uri == _WATCHED_URI:
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text="Watched.")
    before, _, after = _TEMPLATE.partition("{id}")
    if uri.startswith(before) and uri.endswith(after):
        name = uri.removeprefix(before).removesuffix(after)
        text = json.dumps({"id": name, "templateTest": True, "data": f"Data for ID: {name}"})
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
    raise NotFound("resource_not_found", f"no resource {uri!r}", "resources/list has them.")


def _messages(first: types.ContentBlock, then: str) -> types.GetPromptResult:
    content = (first, types.TextContent(text=then))
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in content])


async def _set_level(_: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


async def main() -> None:
    fixtures = Fixtures()
    handlers = Handlers(
        list_tools=fixtures.list_tools,
        call_tool=fixtures.call_tool,
        list_resources=fixtures.list_resources,
        list_templates=fixtures.list_templates,
        read_resource=fixtures.read_resource,
        subscribe=fixtures.subscribe,
        unsubscribe=fixtures.unsubscribe,
        list_prompts=fixtures.list_prompts,
        get_prompt=fixtures.get_prompt,
        complete=fixtures.complete,
    )
    server = assemble(open_meshes, handlers, Subscriptions(bus=fixtures.bus))
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
    server.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="milkweed")
    )
    await serve_http(
        server,
        bind("127.0.0.1", 0),
        lambda url: print(f"MCP over HTTP at {url}", file=sys.stderr, flush=True),
    )


if __name__ == "__main__":
    anyio.run(main)
