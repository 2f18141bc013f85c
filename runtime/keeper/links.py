"""One host as its keeper sees it: the way to its services, its events, and its loss."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio

from ..actor import Actor
from ..call import ActorRef
from ..engines import Engine, HostChannel
from ..errors import MilkweedError, Unavailable
from ..paths import MeshPaths
from ..records import HostEvent, HostState, HostView
from ..schedulers import HostHandle
from ..services.host import Host
from ..tasks import background_tasks

__all__ = ["CALL_S", "HostLink", "how_it_failed", "why_lost"]

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")
T = TypeVar("T")

_RETRY_S = 0.015
_POLL_S = 30.0
_HEARTBEAT_S = 2.0
_ENDED = re.compile(r"agent \d+ ended: (exit|signal) (\d+)")
_SILENT_S = 8.0
_ALONE_S = 1.5
CALL_S = 20.0

OnEvents = Callable[[int, tuple[HostEvent, ...]], None]


class HostLink:
    """`run` follows the host until it is told that it is lost; `changed` is called at each change of state.

    A host that was not reached when the lease was extended hears of it when it is.
    A link starts from the spool's first event, whatever the index holds: folding an event twice changes
    nothing. That of a host that is started again goes on `after` what the one before has taken.
    """

    def __init__(
        self,
        handle: HostHandle,
        *,
        paths: MeshPaths,
        engine: Engine,
        on_events: OnEvents,
        changed: Callable[[int], None],
        lease_left_s: Callable[[], float],
        after: int = 0,
    ) -> None:
        self.handle = handle
        self.host = handle.host
        self.state: HostState = "starting"
        self.reason = ""
        self.after = after
        self.ready = anyio.Event()
        self.lost = anyio.Event()
        self._agent_pid: int | None = None
        self._paths = paths
        self._engine = engine
        self._gone = anyio.Event()
        self._why = ""
        self._on_events = on_events
        self._changed = changed
        self._lease_left_s = lease_left_s
        self._channel: HostChannel | None = None
        self._silent = anyio.Event()

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
            await self._gone.wait()
            group.cancel_scope.cancel()
        self._channel = None
        self.lost.set()
        self._become("lost", self._why or self._last_words())

    @property
    def is_given_up(self) -> bool:
        """Whether it was told that it is lost; `lost` is set when that was heard."""
        return self._gone.is_set()

    def lose(self, why: str) -> None:
        """The host is gone; the first reason stays, and an empty one leaves it to the host's last words."""
        if not self._gone.is_set():
            self._why = why
            self._gone.set()

    async def _follow(self) -> None:
        alone_since = anyio.current_time()
        while True:
            try:
                async with self._engine.connect(self.handle, self._paths) as channel:
                    await self._follow_events(channel)
            except MilkweedError as error:
                logger.debug("host %d: %s", self.host, error)
                if error.code == "deadline_exceeded":
                    self._be_silent(f"has not answered for {_SILENT_S:.0f} s: stopped or starved")
            if self._channel is not None:
                self._channel, alone_since = None, anyio.current_time()
            if self.state == "ready" and anyio.current_time() - alone_since > _ALONE_S:
                # Its guard is there and it is not: the guard is stopped, or slow to tell.
                self._be_silent("does not accept connections, and its guard has not said that it ended")
            await anyio.sleep(_RETRY_S)

    async def _follow_events(self, channel: HostChannel) -> None:
        host = channel.actor(Host.__name__, Host)
        self._agent_pid = (await host.within(_SILENT_S).call_one(Host.facts)).agent_pid
        await host.within(_SILENT_S).call_one(Host.set_lease, self._lease_left_s())
        self._channel = channel
        self._answers()
        async with background_tasks() as tasks:
            tasks.start_soon(self._listen_to_its_heart, host)
            while True:
                self.take(await host.within(None).call_one(Host.events, self.after, _POLL_S))

    async def _listen_to_its_heart(self, host: ActorRef[Host]) -> None:
        """A stopped agent keeps its connection: that it does not answer is all there is to see."""
        while True:
            try:
                await host.within(_SILENT_S).call_one(Host.facts)
            except Unavailable as error:
                if error.code != "deadline_exceeded":
                    return  # the connection is gone, which those who wait for events hear too
                self._be_silent(f"has not answered for {_SILENT_S:.0f} s: stopped or starved")
            else:
                self._answers()
            await anyio.sleep(_HEARTBEAT_S)

    def _be_silent(self, why: str) -> None:
        if self.state in ("starting", "ready"):
            pid = f" (pid {self._agent_pid})" if self._agent_pid else ""
            self._become("silent", f"its agent{pid} {why}")
            self._silent.set()

    def _answers(self) -> None:
        if self.state in ("starting", "silent"):
            self._become("ready", "")
            self.ready.set()
            self._silent = anyio.Event()

    def _become(self, state: HostState, reason: str) -> None:
        self.state, self.reason = state, reason
        self._changed(self.host)

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
        if channel is None or self.state == "silent":
            raise self.unreachable()
        try:
            return await channel.actor(cls.__name__, cls).within(deadline_s).call_one(method, *args, **kwargs)
        except Unavailable as error:
            if error.code != "connection_lost":
                raise
            raise self.unreachable() from None

    async def look_within(
        self,
        deadline_s: float,
        cls: type[A],
        method: Callable[Concatenate[A, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """`call_within` for what changes nothing: given up as soon as the host is silent.

        Raises:
            MilkweedError: as there.
        """
        answers: list[T | MilkweedError] = []

        async def call() -> None:
            try:
                answers.append(await self.call_within(deadline_s, cls, method, *args, **kwargs))
            except MilkweedError as error:
                answers.append(error)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await self._silent.wait()
            group.cancel_scope.cancel()
        answer = answers[0] if answers else self.unreachable()
        if isinstance(answer, MilkweedError):
            raise answer
        return answer

    def unreachable(self) -> Unavailable:
        why = f": {self.reason}" if self.reason else ""
        if self.state == "lost":
            step = "Call mesh_status; release the mesh and allocate it again to replace a lost host."
            return Unavailable("host_lost", f"host {self.host} is lost{why}", step)
        step = (
            "It may come back: call mesh_status; kill -CONT its agent if it was stopped, or release the mesh."
        )
        return Unavailable("host_lost", f"host {self.host} does not answer{why}", step)

    def _last_words(self) -> str:
        directory = self._paths.host(self.host)
        return why_lost(_last_line(directory / "guard.log"), _last_line(directory / "agent.log"))


def how_it_failed(directory: Path) -> str:
    """Why the agent of a host ended by itself, by the logs there; empty where it did not, or nobody knows."""
    guard = _last_line(directory / "guard.log")
    ended = _ENDED.search(guard)
    if ended is None or ended[1] != "exit" or ended[2] == "0":
        return ""
    return why_lost(guard, _last_line(directory / "agent.log"))


def why_lost(guard: str, agent: str) -> str:
    """Why a host is gone, from the last lines of its guard's and its agent's logs.

    A guard that outlives its agent says how that ended; one that does not was killed itself.
    """
    ended = _ENDED.search(guard)
    if ended is None:
        return "its guard was killed"
    how, number = ended[1], int(ended[2])
    if how == "signal":
        return f"its agent was killed ({signal.Signals(number).name})"
    if number == 0:
        return "its agent was told to end"
    return (
        f"its agent failed (exit {number}): {agent[:200]}" if agent else f"its agent failed (exit {number})"
    )


def _last_line(path: Path) -> str:
    try:
        return (path.read_text(errors="replace").strip().splitlines() or [""])[-1]
    except OSError:
        return ""
