from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from milkweed.runtime.actor import Actor, endpoint
from milkweed.runtime.call import Session, open_connection, serve
from milkweed.runtime.errors import MilkweedError, NotFound, ProtocolError, RemoteFailure, Unavailable
from milkweed.runtime.wire import WIRE_VERSION, Kind, encode, encode_json

pytestmark = pytest.mark.anyio


class Echo(Actor):
    def __init__(self) -> None:
        self.started = anyio.Event()
        self.cancelled = anyio.Event()
        self.finished = anyio.Event()
        self.release = anyio.Event()

    @endpoint
    async def echo(self, value: object, *, twice: bool = False) -> object:
        return (value, value) if twice else value

    @endpoint
    async def missing(self) -> None:
        raise NotFound("mesh_not_found", "no mesh 'x'", "Call list_meshes.")

    @endpoint
    async def broken(self) -> None:
        raise ZeroDivisionError("by design")

    @endpoint
    async def unpicklable(self) -> object:
        return (item for item in ())

    @endpoint
    async def wait(self) -> str:
        self.started.set()
        try:
            await self.release.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return "released"

    @endpoint
    async def finish(self) -> None:
        with anyio.CancelScope(shield=True):
            self.started.set()
            await self.release.wait()
            self.finished.set()

    async def private(self) -> None:
        raise AssertionError("not an endpoint")


@asynccontextmanager
async def serving(tmp_path: Path, actor: Actor, stop: anyio.Event | None = None) -> AsyncIterator[Path]:
    path = tmp_path / "s"
    async with anyio.create_task_group() as group:

        async def listen(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await serve(path, {"echo": actor}, role="test", stop=stop, task_status=task_status)

        await group.start(listen)
        with anyio.fail_after(10):
            yield path
        group.cancel_scope.cancel()


OTHER_USER = """
import os, socket, sys
os.setgroups([])
os.setresuid(65534, 65534, 65534)
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    print("connected")
    client.settimeout(20)
    print(client.recv(100))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_another_user_who_reaches_the_socket_is_hung_up_on_without_a_word(
    echo: Echo, reachable: Path
) -> None:
    async with serving(reachable, echo) as path:
        path.chmod(0o666)
        other = await anyio.run_process([sys.executable, "-I", "-c", OTHER_USER, str(path)])
        assert other.stdout == b"connected\nb''\n"
        async with connected(path) as connection:
            assert await connection.actor("echo", Echo).call_one(Echo.echo, 7) == 7


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="mw-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Session]:
    async with open_connection(path, role="test", peer="the echo") as connection:
        yield connection


async def test_a_call_returns_what_the_endpoint_returned(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        actor = connection.actor("echo", Echo)
        assert await actor.call_one(Echo.echo, {"a": [1]}, twice=True) == ({"a": [1]}, {"a": [1]})


async def test_many_calls_are_under_way_at_once(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        actor = connection.actor("echo", Echo)
        async with anyio.create_task_group() as group:
            group.start_soon(actor.call_one, Echo.wait)
            await echo.started.wait()
            assert await actor.call_one(Echo.echo, 1) == 1
            echo.release.set()


async def test_our_errors_cross_as_themselves_and_others_as_internal(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        actor = connection.actor("echo", Echo)
        with pytest.raises(NotFound, match=r"mesh_not_found: no mesh 'x'\. Call list_meshes\."):
            await actor.call_one(Echo.missing)
        with pytest.raises(RemoteFailure, match="ZeroDivisionError: by design") as caught:
            await actor.call_one(Echo.broken)
        assert "in broken" in caught.value.remote_traceback
        with pytest.raises(RemoteFailure):
            await actor.call_one(Echo.unpicklable)
        assert await actor.call_one(Echo.echo, "still there") == "still there"


async def test_only_endpoints_can_be_called(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        for name, method in [("echo", "private"), ("echo", "__init__"), ("nobody", "echo")]:
            with pytest.raises(NotFound, match="endpoint_not_found"):
                await connection.request(name, method, (), {}, 5.0)


async def test_a_deadline_is_an_error_and_cancels_the_other_side(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        with pytest.raises(Unavailable, match="deadline_exceeded"):
            await connection.actor("echo", Echo).within(0.01).call_one(Echo.wait)
        await echo.cancelled.wait()


async def test_a_cancelled_caller_cancels_the_other_side(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        async with anyio.create_task_group() as group:
            group.start_soon(connection.actor("echo", Echo).call_one, Echo.wait)
            await echo.started.wait()
            group.cancel_scope.cancel()
        await echo.cancelled.wait()


async def test_what_an_endpoint_shields_is_not_cancelled(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        actor = connection.actor("echo", Echo)
        async with anyio.create_task_group() as group:
            group.start_soon(actor.call_one, Echo.finish)
            await echo.started.wait()
            group.cancel_scope.cancel()
        # Calls of one connection are heard in order: behind this one, the cancel has come.
        assert await actor.call_one(Echo.echo, 1) == 1
        echo.release.set()
        with anyio.fail_after(5):
            await echo.finished.wait()


async def test_a_caller_that_leaves_cancels_its_calls(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path:
        left = Unavailable("test", "", "")
        async with connected(path) as connection, anyio.create_task_group() as group:

            async def call() -> None:
                nonlocal left
                try:
                    await connection.actor("echo", Echo).call_one(Echo.wait)
                except Unavailable as error:
                    left = error

            group.start_soon(call)
            await echo.started.wait()
            connection.close()
        await echo.cancelled.wait()
        assert left.code == "connection_lost"


async def test_a_stopping_server_answers_what_is_under_way(tmp_path: Path, echo: Echo) -> None:
    stop = anyio.Event()
    async with serving(tmp_path, echo, stop) as path, connected(path) as connection:
        answers: list[str] = []
        async with anyio.create_task_group() as group:

            async def call() -> None:
                answers.append(await connection.actor("echo", Echo).call_one(Echo.wait))

            group.start_soon(call)
            await echo.started.wait()
            stop.set()
            echo.release.set()
        assert answers == ["released"]
        await connection.closed.wait()


async def test_nobody_listening_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="the echo does not listen"):
        async with connected(tmp_path / "nothing"):
            raise AssertionError("connected to nothing")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"mw" + b"\xff" * 22,
        b"".join(encode(Kind.CALL, 1, b"before the hello")),
        encode_json(Kind.HELLO, {"wire": 999}),
        b"".join(encode(Kind.HELLO, 0, b"not json")),
        encode_json(Kind.HELLO, {"wire": 2}) + struct.pack("!2sBBIQQ", b"mw", 2, 2, 0, 1, 2**31),
    ],
    ids=["http", "junk", "early call", "other version", "no json", "oversized"],
)
async def test_a_peer_that_speaks_something_else_is_told_why_and_left(
    tmp_path: Path, echo: Echo, sent: bytes
) -> None:
    async with serving(tmp_path, echo) as path:
        stream = await anyio.connect_unix(path)
        await stream.send(sent)
        heard = bytearray()
        try:
            while True:
                heard += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
        await stream.aclose()
        assert b"reason" in heard
        async with connected(path) as connection:
            assert await connection.actor("echo", Echo).call_one(Echo.echo, 1) == 1


async def test_a_server_of_another_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as group:

        async def handle(stream: anyio.abc.SocketStream) -> None:
            await stream.send(encode_json(Kind.HELLO, {"wire": 999}))
            await stream.aclose()

        group.start_soon(listener.serve, handle)
        with pytest.raises(ProtocolError, match=f"wire version 999, this is {WIRE_VERSION}"):
            async with connected(path):
                raise AssertionError("shook hands")
        group.cancel_scope.cancel()


async def test_connections_leave_no_descriptor_behind(tmp_path: Path, echo: Echo) -> None:
    async with serving(tmp_path, echo) as path:
        async with connected(path):
            pass
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            async with connected(path) as connection:
                await connection.actor("echo", Echo).call_one(Echo.echo, 1)
        while len(os.listdir("/proc/self/fd")) > before:
            await anyio.lowlevel.checkpoint()


async def test_a_stale_socket_is_replaced(tmp_path: Path, echo: Echo) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "s"))
    dead.close()
    async with serving(tmp_path, echo) as path, connected(path) as connection:
        assert isinstance(connection.peer_hello.get("pid"), int)
        with pytest.raises(MilkweedError):
            await connection.request("echo", "nothing", (), {}, 5.0)
