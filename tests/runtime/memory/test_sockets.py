"""What the owner's sockets do with peers that are not what they say, and peers with such owners."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from secrets import token_bytes

import anyio
import pytest

from milkweed.runtime import RDMABuffer
from milkweed.runtime.errors import MilkweedError, ProtocolError, Unavailable
from milkweed.runtime.memory.protocol import (
    CODE_BYTES,
    HELLO_BYTES,
    NONCE_BYTES,
    REPLY_BYTES,
    REQUEST_BYTES,
    Request,
    Session,
    hello,
    nonce_of,
)
from milkweed.runtime.mesh_secret import make_secret
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, Peer, open_peer, pattern

MIB = 1024 * 1024


def connected(buffer: RDMABuffer) -> socket.socket:
    address = buffer.handle.owner.tcp
    assert address is not None
    return socket.create_connection(address, DEADLINE_S)


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def greeted(sock: socket.socket, buffer: RDMABuffer, secret: bytes = b"") -> Session:
    mine = token_bytes(NONCE_BYTES)
    sock.sendall(hello(mine, ""))
    answer = exactly(sock, NONCE_BYTES + CODE_BYTES)
    session = Session(secret, buffer.handle.owner.token, mine, answer[:NONCE_BYTES])
    sock.sendall(session.asking_proof)
    return session


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_random_bytes_end_their_connection_and_nothing_else(owner: Peer, full_size: bool) -> None:
    buffer = owner.call(peers.filled, 1, 1000)
    dice = random.Random(5)
    for turn in range(2000 if full_size else 100):
        with connected(buffer) as sock, suppress(OSError, EOFError):
            if turn % 2:
                greeted(sock, buffer)
            sock.sendall(dice.randbytes(dice.choice((40, 72, 200, 5000))))
            sock.shutdown(socket.SHUT_WR)
            assert is_closed(sock) or turn % 2
    assert peers.read(buffer.over("tcp")) == pattern(1, 1000).tobytes()


def test_a_request_that_is_not_the_next_one_ends_the_connection(owner: Peer) -> None:
    buffer = owner.call(peers.filled, 1, 1000)
    handle = buffer.handle
    request = Request(False, handle.slot, handle.generation, 0, 10)
    with connected(buffer) as sock:
        session = greeted(sock, buffer)
        sock.sendall(session.request(request, handle.key, 1))
        exactly(sock, REPLY_BYTES + 10)
        sock.sendall(session.request(request, handle.key, 1))  # heard by somebody, and said again
        assert is_closed(sock)


def test_a_request_is_good_for_its_own_connection_only(owner: Peer) -> None:
    buffer = owner.call(peers.filled, 1, 1000)
    handle = buffer.handle
    request = Request(False, handle.slot, handle.generation, 0, 10)
    with connected(buffer) as first, connected(buffer) as second:
        heard = greeted(first, buffer).request(request, handle.key, 1)
        session = greeted(second, buffer)
        second.sendall(heard)
        status, _ = session.read_reply(exactly(second, REPLY_BYTES), 1, handle.key, 0)
    assert status != 0


def test_what_does_not_know_the_meshs_secret_is_told_nothing(tmp_path: Path) -> None:
    secret = str(make_secret(tmp_path / "secret"))
    with open_peer(MILKWEED_BUFFER_ADDRESS="127.0.0.1", MILKWEED_SECRET_FILE=secret) as owner:
        buffer = owner.call(peers.filled, 1, 1000)
        with connected(buffer) as sock:
            session = greeted(sock, buffer, b"a guess")
            handle = buffer.handle
            with suppress(ConnectionError):
                sock.sendall(
                    session.request(Request(False, handle.slot, handle.generation, 0, 10), handle.key, 1)
                )
            assert is_closed(sock)
        with pytest.raises(ProtocolError, match="of another mesh"):
            peers.read(buffer.over("tcp"))
        with open_peer(MILKWEED_SECRET_FILE=secret) as member:
            assert member.call(peers.read, buffer.over("tcp")) == pattern(1, 1000).tobytes()
            assert member.call(peers.read, buffer.over("unix")) == pattern(1, 1000).tobytes()


def member(mesh: str, secret: Path, **env: str) -> AbstractContextManager[Peer]:
    """A process that was started on a mesh."""
    return open_peer(MILKWEED_MESH=mesh, MILKWEED_SECRET_FILE=str(secret), **env)


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_who_is_attached_to_two_meshes_proves_to_each_that_it_is_of_it(
    tmp_path: Path, transport: str
) -> None:
    files = {mesh: make_secret(tmp_path / mesh) for mesh in ("mesh-a", "mesh-b")}
    address = {"MILKWEED_BUFFER_ADDRESS": "127.0.0.1"}
    with (
        member("mesh-a", files["mesh-a"], **address) as one,
        member("mesh-b", files["mesh-b"], **address) as two,
        open_peer(**address) as guest,
    ):
        theirs = [peer.call(peers.filled, at, 5000).over(transport) for at, peer in enumerate((one, two))]
        with pytest.raises(Unavailable, match=rf"transport_unusable.*{transport}: .*attach\('mesh-a'\)"):
            guest.call(peers.read, theirs[0])
        with pytest.raises(Unavailable, match="mesh-a"):
            two.call(peers.read, theirs[0])
        before = guest.call(peers.filled, 5, 5000).over(transport)
        for mesh, file in files.items():
            guest.call(peers.learn, mesh, file)
        assert [guest.call(peers.read, buffer) for buffer in theirs] == [
            pattern(at, 5000).tobytes() for at in range(2)
        ]
        after = guest.call(peers.filled, 6, 5000).over(transport)
        assert after.handle.owner.meshes == ("mesh-b", "mesh-a", "")
        for peer in (one, two):
            with pytest.raises(Unavailable, match="its owner is of no mesh"):  # when that handle was made
                peer.call(peers.read, before)
            assert peer.call(peers.read, after) == pattern(6, 5000).tobytes()
        assert peers.read(after) == pattern(6, 5000).tobytes()  # of no mesh, as its owner is too


def test_a_secret_that_cannot_be_read_is_said(owner: Peer, tmp_path: Path) -> None:
    with member("mesh-a", make_secret(tmp_path / "a")) as one, open_peer() as guest:
        buffer = one.call(peers.filled, 1, 5000).over("unix")
        guest.call(peers.learn, "mesh-a", tmp_path / "gone")
        with pytest.raises(Unavailable, match=r"transport_unusable.*cannot read .*gone"):
            guest.call(peers.read, buffer)
        theirs = guest.call(peers.filled, 2, 5000).over("unix")
        with pytest.raises(ProtocolError, match="of another mesh"):
            one.call(peers.read, theirs)


def test_neither_secret_nor_key_is_ever_sent() -> None:
    secret, nonces, key = b"the secret", (b"a" * 32, b"b" * 32), b"k" * 16
    session = Session(secret, b"t" * 16, *nonces)
    request = session.request(Request(True, 1, 2, 3, 4), key, 1)
    said = session.asking_proof + session.serving_proof + request + session.reply(0, 1, key)
    assert secret not in said
    assert key not in said


Serve = Callable[[socket.socket, bytes], None]


def impostor(serve: Serve) -> tuple[socket.socket, Callable[[], None]]:
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError, EOFError):
            sock, _ = listener.accept()
            with sock:
                serve(sock, nonce_of(exactly(sock, HELLO_BYTES)))

    return listener, run


@pytest.mark.parametrize("knows", ["nothing", "the secret"])
@pytest.mark.anyio
async def test_who_listens_in_the_owners_place_is_found_out(owner: Peer, knows: str) -> None:
    """It may even know the mesh's secret: without the buffer's key no answer of its counts."""
    buffer = owner.call(peers.filled, 1, 1000)

    def serve(sock: socket.socket, nonce: bytes) -> None:
        session = Session(b"", buffer.handle.owner.token, nonce, b"n" * NONCE_BYTES)
        proof = session.serving_proof if knows == "the secret" else bytes(CODE_BYTES)
        sock.sendall(b"n" * NONCE_BYTES + proof)
        exactly(sock, CODE_BYTES + REQUEST_BYTES)
        sock.sendall(session.reply(0, 1, bytes(16)) + b"x" * 1000)

    listener, run = impostor(serve)
    with listener:
        object.__setattr__(buffer.handle.owner, "tcp", listener.getsockname())
        object.__setattr__(buffer.handle.owner, "token", buffer.handle.owner.token[:-1] + knows[:1].encode())
        dst = bytearray(1000)
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.to_thread.run_sync, run)
                with pytest.raises(ProtocolError):
                    await buffer.over("tcp").read_into(dst)
    assert dst == bytes(1000)


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.anyio
async def test_a_transfer_that_takes_too_long_is_ended(mortal: Peer, transport: str) -> None:
    buffer = mortal.call(peers.filled, 1, 16 * MIB).over(transport)
    mortal.stop()
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(Unavailable, match="deadline_exceeded"):
            await buffer.read_into(bytearray(16 * MIB), timeout=0.05)
    mortal.go_on()
    assert peers.read(buffer) == pattern(1, 16 * MIB).tobytes()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.anyio
async def test_a_transfer_that_is_cancelled_ends_and_the_next_one_is_right(
    mortal: Peer, transport: str
) -> None:
    buffer = mortal.call(peers.filled, 1, 16 * MIB).over(transport)
    peers.read(buffer)  # connections are kept
    mortal.stop()
    with anyio.fail_after(DEADLINE_S):
        with anyio.move_on_after(0.05) as scope:
            moving = buffer.read_into(bytearray(16 * MIB))
            await moving
        assert scope.cancelled_caught
        while not moving.done():
            await anyio.sleep(0.005)
    with pytest.raises(MilkweedError, match="cancelled"):
        moving.get()
    mortal.go_on()
    assert peers.read(buffer) == pattern(1, 16 * MIB).tobytes()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_kept_connection_that_has_ended_is_no_sign_of_a_dead_owner(mortal: Peer, transport: str) -> None:
    buffer = mortal.call(peers.filled, 1, 1000).over(transport)
    for _ in range(2):
        assert peers.read(buffer) == pattern(1, 1000).tobytes()
        assert mortal.call(peers.hang_up) == 1


def test_who_asks_nothing_makes_room_for_who_does(mortal: Peer) -> None:
    mortal.call(peers.limit_peers, 4)
    buffer = mortal.call(peers.filled, 1, 1000)
    own = [connected(buffer) for _ in range(8)]
    for sock in own:
        greeted(sock, buffer)  # all but the last ones are ended for those who come after them
    assert peers.read(buffer.over("tcp")) == pattern(1, 1000).tobytes()
    assert is_closed(own[0])
    for sock in own:
        sock.close()
