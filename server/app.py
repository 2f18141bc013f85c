"""The MCP application: tools, resources and prompts behind one server, in both protocol eras."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from .. import __version__
from .completions import Completions
from .handling import CompletionHandler, Context, PromptHandlers, ResourceHandlers, ToolHandlers
from .instructions import INSTRUCTIONS
from .opener import Opener
from .prompts import Prompts
from .resources import Resources
from .subscriptions import LOOK_S, Subscriptions
from .tool_calls import ToolCalls
from .transcripts.library import Library

if TYPE_CHECKING:
    from ..runtime.client import Meshes
    from ..tools.registry import Registry
    from .transcripts.record import Recorder

__all__ = ["CALL_DEADLINE_S", "HEARTBEAT_S", "Offer", "create_server", "make_server"]

CALL_DEADLINE_S = 45.0
HEARTBEAT_S = 5.0

OpenMeshes = Callable[[], AbstractAsyncContextManager["Meshes"]]


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
    completions = Completions(library, deadline_s=call_deadline_s)
    return make_server(Offer(tools, resources, Prompts(), completions, subscriptions), open_meshes)


@dataclass(frozen=True)
class Offer:
    """What a server answers requests with."""

    tools: ToolHandlers
    resources: ResourceHandlers
    prompts: PromptHandlers
    completions: CompletionHandler
    subscriptions: Subscriptions


def make_server(offer: Offer, open_meshes: OpenMeshes) -> Server[Opener]:
    """The server of an offer, whatever that is: how it opens, tells of changes and says what it can."""
    subscriptions = offer.subscriptions

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

    async def joined(context: Context, _: types.NotificationParams | None) -> None:
        subscriptions.join(context.session)

    server = _Server(
        "milkweed",
        version=__version__,
        title="Milkweed",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=offer.tools.list,
        on_call_tool=offer.tools.call,
        on_list_resources=offer.resources.list,
        on_list_resource_templates=offer.resources.list_templates,
        on_read_resource=offer.resources.read,
        on_subscribe_resource=offer.resources.subscribe,
        on_unsubscribe_resource=offer.resources.unsubscribe,
        on_subscriptions_listen=subscriptions.listen,
        on_list_prompts=offer.prompts.list,
        on_get_prompt=offer.prompts.get,
        on_completion=offer.completions.complete,
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
