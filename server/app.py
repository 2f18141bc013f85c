"""The MCP application: the registry's tools behind `tools/list` and `tools/call`, in both protocol eras."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from .. import __version__
from ..runtime.errors import MilkweedError, NotFound, RemoteFailure, Unavailable
from ..tools.registry import Answer, Call, Registry, Text, Tool
from ..tools.verdicts import clean
from .instructions import INSTRUCTIONS
from .opener import Opener
from .progress import Progress
from .resources import TEMPLATES, list_resources, read_resource
from .transcripts.answers import Answer as Seen

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ..runtime.client import Meshes
    from .transcripts.record import Recorder

__all__ = ["CALL_DEADLINE_S", "HEARTBEAT_S", "create_server", "describe_tool"]

CALL_DEADLINE_S = 45.0
HEARTBEAT_S = 5.0
_ERROR_LIMIT = 4000

_log = logging.getLogger("milkweed.server")

_T = TypeVar("_T")
OpenMeshes = Callable[[], AbstractAsyncContextManager["Meshes"]]


def create_server(
    open_meshes: OpenMeshes,
    registry: Registry,
    *,
    call_deadline_s: float = CALL_DEADLINE_S,
    heartbeat_s: float = HEARTBEAT_S,
    recorder: Recorder | None = None,
) -> Server[Opener]:
    """A server that opens the meshes once and offers the registry's tools.

    `call_deadline_s`: after that a call is answered `deadline_exceeded`, whatever the tool does.
    `heartbeat_s`: how often a caller that asked for progress hears of a call that has nothing to tell.
    `recorder`: gets every call with its answer before the caller does.
    """
    principal = f"uid:{os.getuid()}"

    @asynccontextmanager
    async def lifespan(_: Server[Opener]) -> AsyncIterator[Opener]:
        async with Opener(open_meshes) as opener:
            yield opener

    async def list_tools(
        _: ServerRequestContext[Opener], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[describe_tool(tool) for tool in registry.tools])

    async def call_tool(
        context: ServerRequestContext[Opener], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if recorder is None:
            return await answer_call(context, params)
        await recorder.before_call()
        started = time.monotonic()
        result = await answer_call(context, params)
        seen = Seen(_texts(result), result.structured_content, bool(result.is_error))
        await recorder.call(params.name, params.arguments or {}, seen, time.monotonic() - started)
        return result

    async def answer_call(
        context: ServerRequestContext[Opener], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        progress = Progress(context.session.report_progress)
        try:
            tool = registry.find(params.name)
            given = tool.arguments.check(params.arguments or {})
            with anyio.fail_after(call_deadline_s):
                async with progress.heartbeat(heartbeat_s):
                    call = Call(await context.lifespan_context.get(), progress.report, principal)
                    answer = await tool.function(call, **given)
        except TimeoutError:
            return _failure(_deadline_exceeded(params.name, call_deadline_s))
        except Exception as error:
            return _failure(_explain(params.name, error))
        return _success(answer)

    async def list_all(
        context: ServerRequestContext[Opener], _: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = await _in_time(context, call_deadline_s, list_resources)
        return types.ListResourcesResult(resources=found)

    async def list_templates(
        _: ServerRequestContext[Opener], __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)

    async def read(
        context: ServerRequestContext[Opener], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        contents = await _in_time(
            context, call_deadline_s, lambda meshes: read_resource(meshes, str(params.uri))
        )
        return types.ReadResourceResult(contents=[contents])

    return Server(
        "milkweed",
        version=__version__,
        title="Milkweed",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_all,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
    )


async def _in_time(
    context: ServerRequestContext[Opener], deadline_s: float, work: Callable[[Meshes], Awaitable[_T]]
) -> _T:
    """
    Raises:
        MCPError: what it raised, in the words of a tool's error.
    """
    try:
        with anyio.fail_after(deadline_s):
            return await work(await context.lifespan_context.get())
    except TimeoutError:
        raise _as_protocol_error(_deadline_exceeded("resources", deadline_s)) from None
    except Exception as error:
        raise _as_protocol_error(_explain("resources", error)) from error


def _as_protocol_error(error: MilkweedError) -> MCPError:
    missing = isinstance(error, NotFound)
    return MCPError(types.INVALID_PARAMS if missing else types.INTERNAL_ERROR, _wire_text(str(error)))


def _texts(result: types.CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))


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
        return types.CallToolResult(content=[types.TextContent(text=_wire_text(answer.text))])
    summary = types.TextContent(text=_wire_text(answer.summary()))
    return types.CallToolResult(content=[summary], structured_content=_wire_value(answer.content()))


def _failure(error: MilkweedError) -> types.CallToolResult:
    text = _wire_text(str(error))
    if len(text) > _ERROR_LIMIT:
        text = f"{text[: _ERROR_LIMIT - 3]}..."
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _deadline_exceeded(tool: str, deadline_s: float) -> MilkweedError:
    return Unavailable(
        "deadline_exceeded",
        f"{tool} had no answer within {deadline_s:g} s",
        "What it began may go on: call list_meshes and mesh_status to see, then call it again.",
    )


def _explain(tool: str, error: Exception) -> MilkweedError:
    """The error to tell: what was raised on purpose as it is, and anything else as `internal_error`."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, RemoteFailure):
        _log.error("%s: %s\n%s", tool, error, error.remote_traceback)
        return error
    if isinstance(error, MilkweedError):
        return error
    _log.error("%s failed", tool, exc_info=error)
    return RemoteFailure(
        "internal_error",
        f"{tool} failed in a way that nobody foresaw ({type(error).__name__})",
        "The server's log has the details. Call list_meshes and mesh_status to see what stands.",
    )


def _wire_text(text: str) -> str:
    """Text as it may be shown: no control characters, no halves of surrogate pairs, whoever wrote it."""
    return clean(text)


def _wire_value(value: Any) -> Any:
    if isinstance(value, str):
        return _wire_text(value)
    if isinstance(value, Mapping):
        return {_wire_text(str(key)): _wire_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_wire_value(item) for item in value]
    return value
