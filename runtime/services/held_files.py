"""What only this host has, as an actor."""

from __future__ import annotations

from functools import partial

import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..holdings import HostHoldings, HostLayout, KeepRule, survey

__all__ = ["HeldFiles"]


class HeldFiles(Actor):
    def __init__(self, context: HostContext) -> None:
        self._layout = HostLayout(context.directory)

    @endpoint
    async def survey(self, within_s: float, kept: KeepRule) -> HostHoldings:
        """Files that go with the host, but for those that are kept, by the paths that its programs know."""
        look = partial(survey, self._layout, within_s, of=lambda file: not kept.keeps(file.path))
        return await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
