"""What a process has of one-sided memory: its regions, their server, the ways to those of others."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import index
from secrets import token_hex
from typing import Any, TypeVar

from .. import _native_memory as native
from ..errors import Conflict, InvalidArgument, MilkweedError, Unavailable
from ..mesh_secret import MeshSecrets
from ..node import Future, Node
from .broadcast import Broadcasting, Desk, Line, Outcome, Receiver, open_line
from .choosing import Transport
from .device import DeviceMemory
from .granting import Grants
from .handle import Handle, Owner, span
from .here import listen_address, machine, name
from .holding import Held, hold
from .outcomes import error_of
from .pinned import Pinned
from .providers import Job, Provider
from .rdma import Rdma
from .regions import Region, Regions
from .routes import Route
from .same_host import Peers, SameHost
from .same_process import SameProcess
from .serving import Server
from .sockets import Sockets
from .ucx import Ucx
from .under_way import Movers, Moving

__all__ = ["Memory", "Wanted"]

T = TypeVar("T")

_ROUTES_KEPT = 256
_BACKLOG = 128
_END_S = 1.0
_LOOK_FIRST_S = 0.0002
_LOOK_MOST_S = 0.02


class Wanted:
    """A transfer that is asked for; made by the caller, so that what is wrong with it is told there."""

    __slots__ = ("handle", "length", "local", "offset", "only", "write")

    def __init__(
        self, handle: Handle, value: Any, offset: int, length: int | None, only: str | None, *, write: bool
    ) -> None:
        """
        Raises:
            InvalidArgument: out_of_range, or `value` is no memory, or cannot be written to.
            TypeError: `offset` or `length` is no integer.
        """
        self.handle = handle
        self.local = hold(value, writable=not write)
        self.offset = index(offset)
        self.length = span(
            handle.size, self.local.size, self.offset, None if length is None else index(length), write=write
        )
        self.only = only
        self.write = write


class Memory:
    """A part of the process's node; any thread."""

    def __init__(self, here: Node) -> None:
        self._node = here
        self._lock = threading.Lock()
        self._machine = machine()
        self._secrets = here.part(MeshSecrets, MeshSecrets.of_process)
        self.regions = Regions()
        self.desk = Desk(self)
        self._ucx = Ucx()
        self._server = Server(self.regions, self._secrets, self.desk, Grants(self._ucx))
        self._owner: Owner | None = None
        peers = Peers(self._machine, self.regions.token)
        providers: tuple[Provider, ...] = (
            SameProcess(self.regions),
            SameHost("shared", peers),
            SameHost("process_vm", peers),
            Sockets("unix", self._machine, self._secrets),
            Rdma(self._ucx, self._machine, self.regions.token, self._secrets),
            Sockets("tcp", self._machine, self._secrets),
        )
        self._providers = {provider.name: provider for provider in providers}
        self._routes: OrderedDict[tuple[bytes, bool, str, str | None], Route] = OrderedDict()
        self._movers = Movers()
        here.in_child(self._abandon)
        here.at_close(self._end)

    def register(self, memory: Held, rights: int) -> Handle:
        """
        Raises:
            Conflict: too_many_buffers.
        """
        owner = self._as_owner()
        region = self.regions.register(memory, rights)
        device = memory.where if isinstance(memory, DeviceMemory) else ""
        return Handle(
            owner, region.slot, region.generation, region.key, memory.size, rights, memory.file >= 0, device
        )

    def view_of(self, handle: Handle) -> memoryview:
        """
        Raises:
            Conflict: not_the_owner; buffer_dropped.
            InvalidArgument: it is on a device.
        """
        region = self._owned(handle)
        if region is None or not region.is_live:
            raise error_of(native.DROPPED, handle, write=False)
        if not isinstance(region.memory, Pinned):
            raise InvalidArgument(
                "unsupported", f"its memory is on {handle.device}", "Use the tensor that it was made of."
            )
        return region.memory.view

    def _owned(self, handle: Handle) -> Region | None:
        if handle.owner.token != self.regions.token:
            raise Conflict("not_the_owner", f"the buffer is of {handle.owner}", "Only its owner can do that.")
        return self.regions.find(handle.slot, handle.generation)

    def start(self, wanted: Sequence[Wanted], timeout: float) -> Moving:
        """Moves all of it; (what it raises: `RDMABuffer.read_into`)."""
        deadline = time.monotonic() + timeout
        return self._movers.start(
            [
                (
                    self.route(one.handle, one.only),
                    Job(one.handle, one.write, one.offset, one.length, one.local, deadline),
                )
                for one in wanted
            ]
        )

    def read(
        self, handle: Handle, dst: Held, offset: int, length: int, only: str | None, timeout: float
    ) -> Moving:
        """`RDMABuffer.read_into`."""
        return self.start([Wanted(handle, dst, offset, length, only, write=False)], timeout)

    def way(self, handle: Handle, only: str | None) -> str:
        """By what it is read, empty if that is not known."""
        try:
            return self.transport(handle, only).name
        except MilkweedError:
            return ""

    async def open_line(self, handle: Handle) -> Line:
        """To talk about a region of whichever process; (what it raises: `broadcast.open_line`)."""
        return await open_line(handle, self._secrets, self._machine)

    def broadcast(
        self,
        source: Handle,
        receivers: Sequence[Receiver],
        told: Callable[[Sequence[Outcome]], T],
        timeout: float,
    ) -> Future[T]:
        """What `told` makes of the outcomes, one a receiver; a waiter goes on when nothing is under way."""

        from .broadcast.leading import lead  # not light, and most processes lead nothing

        async def work() -> T:
            return told(await lead(source, receivers, self.open_line, timeout))

        return Broadcasting(self._node, work())

    def transport(self, handle: Handle, only: str | None) -> Transport:
        return self.route(handle, only).transport(handle)

    def drop(self, handle: Handle, timeout: float) -> Future[None]:
        """
        Raises:
            Conflict: not_the_owner.
        """
        region = self._owned(handle)
        if region is not None:
            self.regions.retire(region)
            if not self.regions.let_go(region):
                return self._node.start(self._let_go(region, timeout))
        done = Future[None]()
        done.settle(lambda: None)
        return done

    async def _let_go(self, region: Region, timeout: float) -> None:
        pause = _LOOK_FIRST_S
        try:
            async with asyncio.timeout(timeout):
                while not self.regions.let_go(region):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LOOK_MOST_S)
        except TimeoutError:
            raise Unavailable(
                "deadline_exceeded",
                f"transfers of the buffer are still under way after {timeout:g} s; no other can begin",
                "Drop it again to wait on: a process may have been stopped in the middle of one.",
            ) from None

    def route(self, handle: Handle, only: str | None = None) -> Route:
        """The ways to a region, or the one of that name."""
        key = (handle.owner.token, handle.mappable, handle.device, only)
        with self._lock:
            route = self._routes.get(key)
            if route is None:
                route = self._routes[key] = Route(self._providers, only)
                if len(self._routes) > _ROUTES_KEPT:
                    self._routes.popitem(last=False)
            return route

    def _as_owner(self) -> Owner:
        with self._lock:
            if self._owner is None:
                self._owner = self._listening()
            if self._owner.meshes != (known := self._secrets.names):  # it has attached since
                self._owner = replace(self._owner, meshes=known)
            return self._owner

    def _listening(self) -> Owner:
        unix = f"milkweed-{token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"\0{unix}")  # goes with the process, and belongs to its network namespace
        listener.listen(_BACKLOG)
        self._server.listen(listener)
        tcp = None
        if (address := listen_address()) is not None:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server((address, 0), family=family, backlog=_BACKLOG)
            tcp = listener.getsockname()[:2]
            self._server.listen(listener)
        token, table_fd, meshes = self.regions.token, self.regions.fd, self._secrets.names
        return Owner(token, os.getpid(), self._machine, table_fd, unix, tcp, meshes, name())

    def _abandon(self) -> None:
        self._ucx.abandon()
        self._server.close()
        for provider in self._providers.values():
            provider.close()
        self.regions.close()

    def _end(self) -> None:
        """Nobody is to read what the interpreter frees from now on."""
        until = time.monotonic() + _END_S
        left = self.regions.retire_all()
        while left and time.monotonic() < until:
            left = [region for region in left if not self.regions.let_go(region)]
            if left:
                time.sleep(_LOOK_FIRST_S)
        self._server.end()
        self._movers.end()
        with suppress(OSError):
            for provider in self._providers.values():
                provider.close()
        self._ucx.close()
        self.regions.close()
