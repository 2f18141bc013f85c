"""The MCP application: tools, resources and prompts behind one server, in both protocol eras."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from .. import __version__
from .completions import Completions
from .instructions import INSTRUCTIONS
from .opener import Opener
from .prompts import get_prompt, list_prompts
from .resources import Resources
from .subscriptions import LOOK_S, Subscriptions
from .tool_calls import ToolCalls
from .transcripts.library import Library

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ..runtime.client import Meshes
    from ..tools.registry import Registry
    from .transcripts.record import Recorder

    _P = TypeVar("_P")
    _R = TypeVar("_R")
    Handler = Callable[[ServerRequestContext[Opener], _P], Awaitable[_R]]

__all__ = ["CALL_DEADLINE_S", "HEARTBEAT_S", "Handlers", "assemble", "create_server"]

CALL_DEADLINE_S = 45.0
HEARTBEAT_S = 5.0

OpenMeshes = Callable[[], AbstractAsyncContextManager["Meshes"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What answers the requests of clients: Milkweed's tools, resources and prompts, or others in a test."""

    list_tools: Handler[types.PaginatedRequestParams | None, types.ListToolsResult]
    call_tool: Handler[types.CallToolRequestParams, types.CallToolResult | types.InputRequiredResult]
    list_resources: Handler[types.PaginatedRequestParams | None, types.ListResourcesResult]
    list_templates: Handler[types.PaginatedRequestParams | None, types.ListResourceTemplatesResult]
    read_resource: Handler[types.ReadResourceRequestParams, types.ReadResourceResult]
    subscribe: Handler[types.SubscribeRequestParams, types.EmptyResult]
    unsubscribe: Handler[types.UnsubscribeRequestParams, types.EmptyResult]
    list_prompts: Handler[types.PaginatedRequestParams | None, types.ListPromptsResult]
    get_prompt: Handler[types.GetPromptRequestParams, types.GetPromptResult | types.InputRequiredResult]
    complete: Handler[types.CompleteRequestParams, types.CompleteResult]


def create_server(
    open_meshes: OpenMeshes,
    registry: Registry,
    *,
    call_deadline_s: float = CALL_DEADLINE_S,
    heartbeat_s: float = HEARTBEAT_S,
    look_s: float = LOOK_S,
    recorder: Recorder | None = None,
    library: Library | None = None,
) -> Server[Opener]:
    """A server that opens the meshes once and offers the registry's tools.

    `call_deadline_s`: after that a request is answered `deadline_exceeded`, whatever is behind it.
    `heartbeat_s`: how often a caller that asked for progress hears of a call that has nothing to tell.
    `look_s`: how often it looks for changes to tell clients.
    `recorder`: gets every call with its answer before the caller does. `library`: transcripts to be read.
    """
    principal = f"uid:{os.getuid()}"
    library = library or Library()
    tools = ToolCalls(
        registry, principal, deadline_s=call_deadline_s, heartbeat_s=heartbeat_s, recorder=recorder
    )
    subscriptions = Subscriptions(look_s)
    resources = Resources(principal, library, subscriptions, deadline_s=call_deadline_s)
    handlers = Handlers(
        list_tools=tools.list,
        call_tool=tools.call,
        list_resources=resources.list,
        list_templates=resources.list_templates,
        read_resource=resources.read,
        subscribe=resources.subscribe,
        unsubscribe=resources.unsubscribe,
        list_prompts=list_prompts,
        get_prompt=get_prompt,
        complete=Completions(library, deadline_s=call_deadline_s).complete,
    )
    return assemble(open_meshes, handlers, subscriptions)


def assemble(open_meshes: OpenMeshes, handlers: Handlers, subscriptions: Subscriptions) -> Server[Opener]:
    """The server around handlers: it opens the meshes once, and tells clients of what changed."""

    @asynccontextmanager
    async def lifespan(_: Server[Opener]) -> AsyncIterator[Opener]:
        async with Opener(open_meshes) as opener, anyio.create_task_group() as tasks:
            tasks.start_soon(watch, opener)
            yield opener
            tasks.cancel_scope.cancel()

    async def watch(opener: Opener) -> None:
        # First in line for the meshes: what a client lists is compared with what it hears of later.
        await opener.tried()
        await subscriptions.watch(lambda: opener.opened)

    async def joined(context: ServerRequestContext[Opener], _: types.NotificationParams | None) -> None:
        subscriptions.join(context.session)

    server = _Server(
        "milkweed",
        version=__version__,
        title="Milkweed",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_subscribe_resource=handlers.subscribe,
        on_unsubscribe_resource=handlers.unsubscribe,
        on_subscriptions_listen=subscriptions.listen,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_completion=handlers.complete,
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, joined)
    return server


class _Server(Server[Opener]):
    """Says to clients of the handshake era, on every transport, that it tells them of new resources."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(resources_changed=True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)
