"""`tools/list` and `tools/call`: the registry's tools, their answers and errors as clients get them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import mcp_types as types

from ..runtime.errors import MilkweedError
from ..tools.registry import Answer, Call, Registry, Text, Tool
from .explaining import deadline_exceeded, explain, wire_text, wire_value
from .progress import Progress
from .transcripts.answers import Answer as Seen

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from .opener import Opener
    from .transcripts.record import Recorder

__all__ = ["ToolCalls", "describe_tool"]

_ERROR_LIMIT = 4000


class ToolCalls:
    """See `create_server` for what it is given."""

    def __init__(
        self,
        registry: Registry,
        principal: str,
        *,
        deadline_s: float,
        heartbeat_s: float,
        recorder: Recorder | None,
    ) -> None:
        self._registry = registry
        self._principal = principal
        self._deadline_s = deadline_s
        self._heartbeat_s = heartbeat_s
        self._recorder = recorder

    async def list(
        self, _: ServerRequestContext[Opener], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[describe_tool(tool) for tool in self._registry.tools])

    async def call(
        self, context: ServerRequestContext[Opener], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if self._recorder is None:
            return await self._answer(context, params)
        await self._recorder.before_call()
        started = time.monotonic()
        result = await self._answer(context, params)
        seen = Seen(_texts(result), result.structured_content, bool(result.is_error))
        await self._recorder.call(params.name, params.arguments or {}, seen, time.monotonic() - started)
        return result

    async def _answer(
        self, context: ServerRequestContext[Opener], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        progress = Progress(context.session.report_progress)
        try:
            tool = self._registry.find(params.name)
            given = tool.arguments.check(params.arguments or {})
            with anyio.fail_after(self._deadline_s):
                async with progress.heartbeat(self._heartbeat_s):
                    call = Call(await context.lifespan_context.get(), progress.report, self._principal)
                    answer = await tool.function(call, **given)
        except TimeoutError:
            return _failure(deadline_exceeded(params.name, self._deadline_s))
        except Exception as error:
            return _failure(explain(params.name, error))
        return _success(answer)


def describe_tool(tool: Tool) -> types.Tool:
    """The entry of a tool in `tools/list`. Without an output schema: it would double the list."""
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.arguments.schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def _success(answer: Answer) -> types.CallToolResult:
    if isinstance(answer, Text):
        return types.CallToolResult(content=[types.TextContent(text=wire_text(answer.text))])
    summary = types.TextContent(text=wire_text(answer.summary()))
    return types.CallToolResult(content=[summary], structured_content=wire_value(answer.content()))


def _failure(error: MilkweedError) -> types.CallToolResult:
    text = wire_text(str(error))
    if len(text) > _ERROR_LIMIT:
        text = f"{text[: _ERROR_LIMIT - 3]}..."
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _texts(result: types.CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))
