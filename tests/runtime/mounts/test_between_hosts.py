"""Feeds that are reached over TCP, by who knows the secret of a mesh; bytes between networks."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from benchmarks.runtime.two_hosts import ADDRESSES, TwoHosts
from milkweed.runtime.errors import InvalidArgument, ProtocolError, Unavailable
from milkweed.runtime.mesh_secret import MeshSecrets, make_secret
from milkweed.runtime.mounts import (
    FEED,
    Feed,
    FileRef,
    Followers,
    RemoteReads,
    connect_feed,
    open_remote,
    open_workspace,
    serve_feed,
)
from milkweed.runtime.mounts import doors as module
from milkweed.runtime.tasks import background_tasks

from .ends import ROOT, command, file_in, prepared, read_all
from .stage import write

pytestmark = pytest.mark.anyio

DEADLINE_S = 60.0
SIZE = 9 * 1024 * 1024 + 4321


def of_mesh(monkeypatch: pytest.MonkeyPatch, secret: Path | None, mesh: str = "mesh-a") -> None:
    """From now on this process is of that mesh, for those who ask it over TCP, and when it asks."""
    env = {} if secret is None else {"MILKWEED_MESH": mesh, "MILKWEED_SECRET_FILE": str(make_secret(secret))}
    monkeypatch.setattr(module, "_secrets", lambda: MeshSecrets(env))


@asynccontextmanager
async def serving_over_tcp(source: Path) -> AsyncIterator[str]:
    """The address."""
    with anyio.fail_after(DEADLINE_S):
        async with open_workspace(source) as workspace, background_tasks() as tasks:
            actors = {FEED: Feed(workspace, Followers())}
            yield await tasks.start(
                lambda task_status: serve_feed(
                    "tcp://127.0.0.1:0", actors, role="keeper", task_status=task_status
                )
            )


@pytest.fixture
def source(directory: Path) -> Path:
    (directory / "src").mkdir()
    write(directory / "src" / "big", os.urandom(SIZE))
    return directory / "src"


async def test_who_knows_the_secret_reads_as_over_a_unix_socket(
    directory: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_mesh(monkeypatch, directory / "secret")
    async with (
        serving_over_tcp(source) as address,
        open_remote(address, "me", landings=prepared()) as remote,
    ):
        assert address.startswith("tcp://127.0.0.1:")
        assert await read_all(remote, await file_in(remote, b"big")) == (source / "big").read_bytes()
        assert await remote.read_whole([await file_in(remote, b"big")]) == [(source / "big").read_bytes()]


async def test_who_knows_another_secret_or_another_mesh_is_refused_before_it_is_heard(
    directory: Path, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    of_mesh(monkeypatch, directory / "secret")
    async with serving_over_tcp(source) as address:
        serving = module._secrets
        for secret, mesh in ((directory / "other", "mesh-a"), (directory / "secret", "mesh-b")):
            of_mesh(monkeypatch, secret, mesh)
            asking = module._secrets
            calls = iter([asking, serving])
            monkeypatch.setattr(module, "_secrets", lambda calls=calls: next(calls)())
            with pytest.raises(ProtocolError, match="of another mesh"):
                await connect_feed(address, "the client")
        of_mesh(monkeypatch, directory / "secret")
        async with open_remote(address, "me") as remote:  # others are served on
            assert b"big" in (await remote.open()).directories[b""]


async def test_why_nobody_was_there_is_told_to_who_reads(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_mesh(monkeypatch, None)
    with anyio.fail_after(DEADLINE_S):
        reads = RemoteReads("tcp://127.0.0.1:1", "another host", patience_s=0.2)
        async with background_tasks() as tasks:
            await tasks.start(reads.run)
            with pytest.raises(Unavailable, match=r"another host was not there .*secret of none"):
                await reads.read(FileRef(b"big", 1, 1), 0, 1)


async def test_who_is_of_no_mesh_is_not_reached_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    of_mesh(monkeypatch, None)
    with pytest.raises(InvalidArgument, match="knows the secret of none"):
        await serve_feed("tcp://127.0.0.1:0", {}, role="host")


@pytest.mark.parametrize("address", ["tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:port"])
async def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"tcp://ADDRESS:PORT"):
        await connect_feed(address, "the client")


async def test_peers_that_say_nothing_or_nonsense_keep_nobody_out(
    directory: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GREET_S", 1.0)
    of_mesh(monkeypatch, directory / "secret")
    async with serving_over_tcp(source) as address:
        there = ("127.0.0.1", int(address.rpartition(":")[2]))
        async with await anyio.connect_tcp(*there) as silent, await anyio.connect_tcp(*there) as loud:
            await loud.send(b"GET / HTTP/1.1\r\n" * 100)
            async with open_remote(address, "me") as remote:
                assert b"big" in (await remote.open()).directories[b""]
            for one in (silent, loud):
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await one.receive()


@pytest.mark.parametrize("listens", [False, True])
async def test_nobody_who_answers_there_is_said(
    listens: bool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GREET_S", 0.2)
    of_mesh(monkeypatch, directory / "secret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not listens:
            listener.close()
        with pytest.raises(Unavailable, match=r"connection_lost: the client at tcp://127.0.0.1"):
            await connect_feed(f"tcp://127.0.0.1:{port}", "the client")


@pytest.fixture
def hosts(namespaces: None) -> Iterator[TwoHosts]:
    made = TwoHosts()
    try:
        yield made
    finally:
        made.close()


async def test_bytes_between_two_networks_go_by_tcp(directory: Path, source: Path, hosts: TwoHosts) -> None:
    secret = {"MILKWEED_MESH": "mesh-a", "MILKWEED_SECRET_FILE": str(make_secret(directory / "secret"))}

    def start(host: int, *words: str) -> subprocess.Popen[bytes]:
        env = {**secret, "MILKWEED_HOST_ADDRESS": ADDRESSES[host]}
        return hosts.start(host, command(*words), env, stdout=subprocess.PIPE, cwd=ROOT)

    feed = start(0, "feed", str(source), f"tcp://{ADDRESSES[0]}:0")
    assert feed.stdout is not None
    address = json.loads(feed.stdout.readline())
    reader = start(1, "read", address, "big")
    assert reader.stdout is not None
    told = json.loads(reader.stdout.readline())
    assert told == {
        "digest": hashlib.sha256((source / "big").read_bytes()).hexdigest(),
        "moved": {"tcp": SIZE},
        "in_messages": "",
    }
