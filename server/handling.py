"""The seam between the protocol and what is offered over it: who answers which requests."""

from __future__ import annotations

from typing import Protocol

import mcp_types as types
from mcp.server.context import ServerRequestContext

from .opener import Opener

__all__ = ["CompletionHandler", "Context", "PromptHandlers", "ResourceHandlers", "ToolHandlers"]

Context = ServerRequestContext[Opener]
Page = types.PaginatedRequestParams | None


class ToolHandlers(Protocol):
    async def list(self, context: Context, page: Page, /) -> types.ListToolsResult: ...

    async def call(
        self, context: Context, params: types.CallToolRequestParams, /
    ) -> types.CallToolResult | types.InputRequiredResult: ...


class ResourceHandlers(Protocol):
    async def list(self, context: Context, page: Page, /) -> types.ListResourcesResult: ...

    async def list_templates(self, context: Context, page: Page, /) -> types.ListResourceTemplatesResult: ...

    async def read(
        self, context: Context, params: types.ReadResourceRequestParams, /
    ) -> types.ReadResourceResult: ...

    async def subscribe(
        self, context: Context, params: types.SubscribeRequestParams, /
    ) -> types.EmptyResult: ...

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams, /
    ) -> types.EmptyResult: ...


class PromptHandlers(Protocol):
    async def list(self, context: Context, page: Page, /) -> types.ListPromptsResult: ...

    async def get(
        self, context: Context, params: types.GetPromptRequestParams, /
    ) -> types.GetPromptResult | types.InputRequiredResult: ...


class CompletionHandler(Protocol):
    async def complete(
        self, context: Context, params: types.CompleteRequestParams, /
    ) -> types.CompleteResult: ...
