"""Telling clients what changed: one watcher of the index, for both protocol eras.

Clients of the handshake era hear of lists on their connection, and of what they subscribed to; later ones
only on the streams of `subscriptions/listen`, which the SDK serves from a bus.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from ..runtime.errors import InvalidArgument, NotFound
from ..runtime.pulse import Changes, Glance, compare
from .resources.addresses import Address, parse

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession

    from ..runtime.client import Meshes

__all__ = ["LOOK_S", "Subscriptions", "concerns"]

LOOK_S = 0.5
_AFTER_FAILURE_S = 5.0
_SEND_S = 2.0
_ASK_S = 3.0
_MOST_CLIENTS = 256
_MOST_ADDRESSES = 256

_log = logging.getLogger("milkweed.server")


@dataclass
class _Client:
    """Of the handshake era. The SDK tells nobody when one is gone: what is sent to it then goes nowhere."""

    session: ServerSession
    addresses: set[str] = field(default_factory=set)


class Subscriptions:
    """`watch` runs as long as the server does; the others are called for requests of clients."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._bus = InMemorySubscriptionBus()
        self._serve_stream = ListenHandler(self._bus)
        self._streamed: Counter[str] = Counter()
        self._clients: dict[int, _Client] = {}

    def join(self, session: ServerSession) -> _Client:
        """A client that hears of lists from now on. The oldest goes where there are too many."""
        # The handshake is the one object that requests of a connection share; while it is held its id is too.
        key = id(session.client_params)
        if key not in self._clients:
            while len(self._clients) >= _MOST_CLIENTS:
                del self._clients[next(iter(self._clients))]
            self._clients[key] = _Client(session)
        return self._clients[key]

    def subscribe(self, session: ServerSession, uri: str) -> None:
        """
        Raises:
            NotFound: resource_not_found, it can be none. InvalidArgument: too_many_subscriptions.
        """
        client = self.join(session)
        if parse(uri) is None:
            raise NotFound(
                "resource_not_found", f"no resource {uri[:200]!r}", "resources/templates/list has the forms."
            )
        if len(client.addresses) >= _MOST_ADDRESSES and uri not in client.addresses:
            raise InvalidArgument(
                "too_many_subscriptions",
                f"this client has {_MOST_ADDRESSES} subscriptions",
                "resources/unsubscribe gives room.",
            )
        client.addresses.add(uri)

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        self.join(session).addresses.discard(uri)

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serves one stream, until its client ends it."""
        uris = [str(uri) for uri in params.notifications.resource_subscriptions or ()][:_MOST_ADDRESSES]
        self._streamed.update(uris)
        try:
            return await self._serve_stream(context, params)
        finally:
            self._streamed.subtract(uris)
            self._streamed = +self._streamed

    async def publish(self, event: ServerEvent) -> None:
        """To the streams whose clients asked for such."""
        await self._bus.publish(event)

    async def watch(self, opened: Callable[[], Meshes | None]) -> None:
        """Looks at the index again and again, and at the output that somebody wants to hear of."""
        version, glance = None, Glance()
        sizes: dict[str, int] = {}
        while True:
            if (meshes := opened()) is None:
                await anyio.sleep(self._look_s)
                continue
            try:
                changes, before = Changes(), glance
                if (now := meshes.version()) != version:
                    glance = meshes.glance()
                    changes = changes if version is None else compare(before, glance)
                    version = now
                wanted = self._wanted()
                sizes, grown = await _look_at_outputs(meshes, wanted, glance, sizes)
                ids = {**before.names, **glance.names}
                about = {uri for uri, one in wanted.items() if concerns(one, changes, ids)}
                await self._tell(about | grown, listed=changes.listed)
            except Exception as error:  # whatever it is, calls are answered without it
                _log.info("changes are not told: %s", error)
                await anyio.sleep(_AFTER_FAILURE_S)
            await anyio.sleep(self._look_s)

    def _wanted(self) -> dict[str, Address]:
        uris = {uri for client in self._clients.values() for uri in client.addresses} | self._streamed.keys()
        return {uri: address for uri in uris if (address := parse(uri)) is not None}

    async def _tell(self, uris: set[str], *, listed: bool) -> None:
        if listed:
            await self.publish(ResourcesListChanged())
        for uri in sorted(uris):
            await self.publish(ResourceUpdated(uri=uri))
        async with anyio.create_task_group() as group:
            for client in tuple(self._clients.values()):
                if listed or uris & client.addresses:
                    group.start_soon(_tell_client, client, uris, listed)


async def _tell_client(client: _Client, uris: set[str], listed: bool) -> None:
    """Gives up on one that does not read: it asks again when it does."""
    with anyio.move_on_after(_SEND_S):
        if listed:
            await client.session.send_resource_list_changed()
        for uri in sorted(uris & client.addresses):
            await client.session.send_resource_updated(uri)


def concerns(address: Address, changes: Changes, ids: Mapping[str, str]) -> bool:
    """Whether what is read there is another now. `ids`: of meshes by their names. Pure."""
    named = address.names
    if address.kind in ("run", "stacks", "output"):
        return named["run"] in changes.runs
    mesh = ids.get(named.get("mesh", ""), named.get("mesh", ""))
    if address.kind == "events":
        return mesh in changes.events
    return address.kind == "mesh" and (mesh in changes.meshes or mesh in changes.events)


async def _look_at_outputs(
    meshes: Meshes, wanted: Mapping[str, Address], glance: Glance, before: Mapping[str, int]
) -> tuple[dict[str, int], set[str]]:
    """Sizes in bytes of the wanted outputs of runs that run, and which of them are larger than before. One
    that is seen for the first time counts as empty before: it may have grown since the client read it."""
    by_run: dict[str, dict[int, str]] = defaultdict(dict)
    for uri, address in wanted.items():
        rank = address.names.get("rank", "")
        if address.kind == "output" and address.names["run"] in glance.runs and rank.isdecimal():
            by_run[address.names["run"]][int(rank)] = uri
    sizes: dict[str, int] = {}
    for run, uris in by_run.items():
        with anyio.move_on_after(_ASK_S):
            mesh = await meshes.find_run(run)
            ranks = sorted({rank.rank for rank in (await mesh.run(run)).ranks} & uris.keys())
            slices = await mesh.read_output(run, ranks=tuple(ranks), offsets=None, tail_bytes=1, max_bytes=1)
            sizes |= {uris[one.rank]: one.size for one in slices}
    return sizes, {uri for uri, size in sizes.items() if size > before.get(uri, 0)}
