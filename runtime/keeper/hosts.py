"""The hosts of a mesh as a group: who is ready, and asking several at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from ..errors import MilkweedError, NotFound
from ..mesh import format_ranks
from ..records import HostState, HostView
from .links import HostLink

__all__ = ["Hosts"]

T = TypeVar("T")


class Hosts:
    """Links by host number; filled once the allocation knows its handles."""

    def __init__(self) -> None:
        self.links: dict[int, HostLink] = {}
        self._returned = anyio.Event()

    def __getitem__(self, host: int) -> HostLink:
        """
        Raises:
            NotFound: host_not_found.
        """
        if host not in self.links:
            raise NotFound(
                "host_not_found", f"no host {host}; hosts are {format_ranks(self.links)}", "Call mesh_status."
            )
        return self.links[host]

    def views(self) -> tuple[HostView, ...]:
        return tuple(self.links[host].view() for host in sorted(self.links))

    def ready(self) -> list[int]:
        return [link.host for link in self.in_state("ready")]

    def in_state(self, state: HostState) -> list[HostLink]:
        return [link for _, link in sorted(self.links.items()) if link.state == state]

    async def next_return(self) -> None:
        """Returns when a host answers again."""
        await self._returned.wait()

    def returned(self) -> None:
        """A host answers that did not."""
        self._returned.set()
        self._returned = anyio.Event()

    def require_ready(self, hosts: Iterable[int]) -> None:
        """
        Raises:
            Unavailable: host_lost, for the first that is not ready.
        """
        for host in hosts:
            if self[host].state != "ready":
                raise self[host].unreachable()

    async def ask(
        self, hosts: Iterable[int], question: Callable[[HostLink], Awaitable[T]]
    ) -> dict[int, T | MilkweedError]:
        """Each host answers for itself, with a result or an error; one never hides another."""
        answers: dict[int, T | MilkweedError] = {}

        async def one(host: int) -> None:
            try:
                answers[host] = await question(self[host])
            except MilkweedError as error:
                answers[host] = error

        async with anyio.create_task_group() as group:
            for host in hosts:
                group.start_soon(one, host)
        return dict(sorted(answers.items()))
