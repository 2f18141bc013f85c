"""The least that an actor call costs in Python: asyncio and pickle over a socket pair, and nothing else.

No supervision, no deadlines, no cancellation, no errors, no threads, cold starts only: what `call_one` and
`call` cost above this is the price of those.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["Actor", "endpoint", "this_host"]

_HEADER = struct.Struct("!QQ")
_LIMIT = 2**20
MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class Actor:
    """As in the libraries."""


def endpoint(method: MethodT) -> MethodT:
    """As in the libraries."""
    return method


class _Link:
    """One side of a connection: frames of two lengths, a number and a pickle."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, sock: socket.socket) -> _Link:
        return cls(*await asyncio.open_connection(sock=sock, limit=_LIMIT))

    def send(self, number: int, body: Any) -> None:
        data = pickle.dumps(body, protocol=5)
        self._writer.write(_HEADER.pack(len(data), number))
        self._writer.write(data)

    async def receive(self) -> tuple[int, Any]:
        size, number = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        return number, pickle.loads(await self._reader.readexactly(size))

    def close(self) -> None:
        self._writer.close()


class _Proc:
    def __init__(self, process: asyncio.subprocess.Process, link: _Link) -> None:
        self.process, self.link = process, link
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._answers = asyncio.create_task(self._receive())

    @classmethod
    async def start(cls) -> _Proc:
        here, there = socket.socketpair()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __spec__.name, str(there.fileno()), pass_fds=[there.fileno()]
        )
        there.close()
        here.setblocking(False)
        return cls(process, await _Link.over(here))

    def call(self, *message: Any) -> asyncio.Future[Any]:
        self._calls += 1
        answer = asyncio.get_running_loop().create_future()
        self._waiting[self._calls] = answer
        self.link.send(self._calls, message)
        return answer

    async def _receive(self) -> None:
        while True:
            number, answer = await self.link.receive()
            self._waiting.pop(number).set_result(answer)

    async def stop(self) -> None:
        self._answers.cancel()
        self.link.close()
        await self.process.wait()


class _Values:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def values(self) -> list[Any]:
        return self._values


class _Endpoint:
    def __init__(self, procs: list[_Proc], actor: str, name: str) -> None:
        self._procs, self._actor, self._name = procs, actor, name

    async def call(self, *arguments: Any) -> _Values:
        calls = [proc.call(self._actor, self._name, arguments) for proc in self._procs]
        return _Values([await call for call in calls])

    def call_one(self, *arguments: Any) -> asyncio.Future[Any]:
        (proc,) = self._procs
        return proc.call(self._actor, self._name, arguments)


class _Actors:
    def __init__(self, procs: list[_Proc], actor: str) -> None:
        self._procs, self._actor = procs, actor

    def slice(self, gpus: int) -> _Actors:
        return _Actors([self._procs[gpus]], self._actor)

    def __getattr__(self, name: str) -> _Endpoint:
        return _Endpoint(self._procs, self._actor, name)


class _Procs:
    def __init__(self, procs: list[_Proc]) -> None:
        self._procs = procs

    async def spawn(self, name: str, cls: type, *arguments: Any) -> _Actors:
        for done in [proc.call(name, cls, arguments) for proc in self._procs]:
            await done
        return _Actors(self._procs, name)

    async def stop(self) -> None:
        for proc in self._procs:
            await proc.stop()


class _Host:
    async def spawn_procs(self, per_host: Mapping[str, int]) -> _Procs:
        (count,) = per_host.values()
        return _Procs(list(await asyncio.gather(*(_Proc.start() for _ in range(count)))))


def this_host() -> _Host:
    """As in the libraries."""
    return _Host()


async def _serve(fd: int) -> None:
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    link = await _Link.over(sock)
    actors: dict[str, Any] = {}
    running: set[asyncio.Task[None]] = set()

    async def run(number: int, actor: str, what: Any, arguments: tuple[Any, ...]) -> None:
        if isinstance(what, type):
            actors[actor] = what(*arguments)
            link.send(number, None)
            return
        result = getattr(actors[actor], what)(*arguments)
        link.send(number, await result if asyncio.iscoroutine(result) else result)

    while True:
        try:
            number, message = await link.receive()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        task = asyncio.create_task(run(number, *message))
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
