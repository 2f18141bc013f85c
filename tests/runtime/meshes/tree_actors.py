"""Actors for tests of calls over trees."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import numpy as np

from milkweed.runtime import Actor, ActorMesh, current_rank, endpoint
from milkweed.runtime.node import node
from milkweed.runtime.tree import Trees


class Notes(Actor):
    """Writes down what it is told, in the order in which it is."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.opened = asyncio.Event()
        self.gate = threading.Event()
        self.began = 0
        self.cancelled = 0

    @endpoint
    async def rank(self) -> int:
        return current_rank().rank

    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def note(self, what: Any) -> None:
        self.notes.append(what)

    @endpoint
    def note_in_turn(self, what: Any) -> None:
        self.notes.append(what)

    @endpoint
    async def size_of(self, data: bytes) -> None:
        self.notes.append(len(data))

    @endpoint
    async def all(self) -> list[Any]:
        return self.notes

    @endpoint
    def all_in_turn(self) -> list[Any]:
        return self.notes

    @endpoint
    async def fail_on(self, *ranks: int) -> int:
        if current_rank().rank in ranks:
            raise ValueError(f"not on rank {current_rank().rank}")
        return current_rank().rank

    @endpoint
    async def double(self, array: Any) -> Any:
        return array * 2

    @endpoint
    async def ones(self, count: int) -> Any:
        self.began += 1
        return np.ones(count)

    @endpoint
    async def wait(self) -> int:
        """Until `open`; how many such calls have begun here."""
        self.began += 1
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.began

    @endpoint
    async def open(self) -> None:
        self.opened.set()
        self.gate.set()

    @endpoint
    def block(self) -> None:
        """The main thread, until `open`."""
        self.gate.wait()

    @endpoint
    async def counts(self) -> tuple[int, int]:
        """How many calls of `wait` have begun here, and how many of them were cancelled."""
        return self.began, self.cancelled


class Caller(Actor):
    """Calls others from its own proc."""

    @endpoint
    async def sum_of(self, others: ActorMesh) -> int:
        node().part(Trees, Trees).least_ranks = 2
        total: int = (await others.rank.reduce("sum")).value()
        return total

    @endpoint
    async def wait_for(self, others: ActorMesh) -> None:
        node().part(Trees, Trees).least_ranks = 2
        await others.wait.call()

    @endpoint
    async def open(self, others: ActorMesh) -> None:
        await others.open.call()
