"""One host as its keeper sees it: the way to its services, its events, and its loss."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar

import anyio

from ..actor import Actor
from ..engines import Engine, HostChannel
from ..errors import MilkweedError, Unavailable
from ..paths import MeshPaths
from ..records import HostEvent, HostState, HostView
from ..schedulers import HostHandle, Scheduler
from ..services.host import Host

__all__ = ["HostLink"]

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")
T = TypeVar("T")

_RETRY_S = 0.015
_POLL_S = 30.0
CALL_S = 20.0

OnEvents = Callable[[int, tuple[HostEvent, ...]], None]


class HostLink:
    """`run` follows the host until it is lost; `changed` is called at each change of state.

    A host that was not reached when the lease was extended hears of it when it is.
    A link starts from the spool's first event, whatever the index holds: folding an event twice changes
    nothing.
    """

    def __init__(
        self,
        handle: HostHandle,
        *,
        paths: MeshPaths,
        engine: Engine,
        scheduler: Scheduler,
        on_events: OnEvents,
        changed: Callable[[int], None],
        lease_left_s: Callable[[], float],
    ) -> None:
        self.handle = handle
        self.host = handle.host
        self.state: HostState = "starting"
        self.reason = ""
        self.after = 0
        self.ready = anyio.Event()
        self.lost = anyio.Event()
        self._agent_pid: int | None = None
        self._paths = paths
        self._engine = engine
        self._scheduler = scheduler
        self._on_events = on_events
        self._changed = changed
        self._lease_left_s = lease_left_s
        self._channel: HostChannel | None = None

    def view(self) -> HostView:
        return HostView(
            host=self.host,
            name=self.handle.name,
            address=self.handle.address,
            state=self.state,
            agent_pid=self._agent_pid,
            directory=str(self._paths.host(self.host)),
            reason=self.reason,
        )

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            await self._scheduler.wait_lost(self.handle)
            group.cancel_scope.cancel()
        self._channel = None
        self.reason = self.reason or self._last_words()
        self.state = "lost"
        self.lost.set()
        self._changed(self.host)

    async def _follow(self) -> None:
        while True:
            try:
                async with self._engine.connect(self.host, self._paths) as channel:
                    await self._follow_events(channel)
            except MilkweedError as error:
                logger.debug("host %d: %s", self.host, error)
            self._channel = None
            await anyio.sleep(_RETRY_S)

    async def _follow_events(self, channel: HostChannel) -> None:
        host = channel.actor(Host.__name__, Host)
        self._agent_pid = (await host.call_one(Host.facts)).agent_pid
        await host.call_one(Host.set_lease, self._lease_left_s())
        self._channel = channel
        if self.state == "starting":
            self.state = "ready"
            self.ready.set()
            self._changed(self.host)
        while True:
            self.take(await host.within(None).call_one(Host.events, self.after, _POLL_S))

    def take(self, events: tuple[HostEvent, ...]) -> None:
        """Passes on events that are new, once each."""
        fresh = tuple(event for event in events if event.seq > self.after)
        if fresh:
            self.after = fresh[-1].seq
            self._on_events(self.host, fresh)

    async def call(
        self,
        cls: type[A],
        method: Callable[Concatenate[A, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """`call_within` with the usual deadline."""
        return await self.call_within(CALL_S, cls, method, *args, **kwargs)

    async def call_within(
        self,
        deadline_s: float,
        cls: type[A],
        method: Callable[Concatenate[A, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Calls an endpoint of the host's service `cls`.

        Raises:
            MilkweedError: what the service raised; host_lost; deadline_exceeded.
        """
        channel = self._channel
        if channel is None:
            raise self.unreachable()
        try:
            return await channel.actor(cls.__name__, cls).within(deadline_s).call_one(method, *args, **kwargs)
        except Unavailable as error:
            if error.code != "connection_lost":
                raise
            raise self.unreachable() from None

    def unreachable(self) -> Unavailable:
        why = f": {self.reason}" if self.reason else ""
        return Unavailable(
            "host_lost",
            f"host {self.host} is {'lost' if self.lost.is_set() else 'not answering'}{why}",
            "Call mesh_status; release the mesh and allocate it again to replace a lost host.",
        )

    def _last_words(self) -> str:
        """Why the host is gone, as far as its logs tell."""
        for name in ("agent.log", "guard.log"):
            try:
                text = (self._paths.host(self.host) / name).read_text(errors="replace").strip()
            except OSError:
                continue
            if text and name == "agent.log" and self.state == "starting":
                return f"its agent did not start: {text.splitlines()[-1][:200]}"
            if text and name == "guard.log":
                return text.splitlines()[-1].partition(": ")[2][:200]
        return "its agent ended"
