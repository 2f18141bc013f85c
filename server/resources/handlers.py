"""The requests about resources, as clients send them in both protocol eras."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mcp_types as types

from ...tools.registry import Call
from ..explaining import in_words, with_meshes
from ..progress import Progress
from .addresses import TEMPLATES
from .listing import list_resources
from .reading import Contents, read_resource

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ...runtime.client import Meshes
    from ..opener import Opener
    from ..subscriptions import Subscriptions
    from ..transcripts.library import Library

__all__ = ["Resources"]


class Resources:
    def __init__(
        self, principal: str, library: Library, subscriptions: Subscriptions, *, deadline_s: float
    ) -> None:
        self._principal = principal
        self._library = library
        self._subscriptions = subscriptions
        self._deadline_s = deadline_s

    async def list(
        self, context: ServerRequestContext[Opener], _: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        async def work(meshes: Meshes) -> types.ListResourcesResult:
            return types.ListResourcesResult(resources=await list_resources(meshes, self._library))

        return await with_meshes(context, self._deadline_s, work)

    async def list_templates(
        self, _: ServerRequestContext[Opener], __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)

    async def read(
        self, context: ServerRequestContext[Opener], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)

        async def work(meshes: Meshes) -> Contents:
            call = Call(meshes, Progress(context.session.report_progress).report, self._principal)
            return await read_resource(call, self._library, uri)

        contents = await with_meshes(context, self._deadline_s, work, uri=uri)
        return types.ReadResourceResult(contents=[contents])

    async def subscribe(
        self, context: ServerRequestContext[Opener], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        uri = str(params.uri)
        with in_words(context.method, uri=uri):
            self._subscriptions.subscribe(context.session, uri)
        return types.EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Opener], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._subscriptions.unsubscribe(context.session, str(params.uri))
        return types.EmptyResult()
