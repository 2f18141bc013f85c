"""Whatever is sent to a proc's sockets: the connection is closed with a reason, and the proc goes on.

Inputs are made by a generator with a seed, which a failure names.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from milkweed.runtime import ActorMesh, ProcMesh, this_host
from milkweed.runtime.addresses import address_of
from milkweed.runtime.wire import MAX_PAYLOAD, WIRE_VERSION, FrameReader, Kind, WireFrame, encode, encode_json
from tests.runtime.meshes.actors import Counter, Worker

DEADLINE_S = 60.0
HELLO = encode_json(Kind.HELLO, {"wire": WIRE_VERSION, "role": "node", "pid": 1, "id": "hostile"})
HEADER = struct.Struct("!2sBBIQQ")


@pytest.fixture(scope="module")
def procs() -> Iterator[ProcMesh]:
    spawned = this_host().spawn_procs(per_host={"gpus": 1}, name="attacked", output="keep").get(DEADLINE_S)
    yield spawned
    spawned.stop(0.0).get(DEADLINE_S)


@pytest.fixture(scope="module")
def counter(procs: ProcMesh) -> ActorMesh:
    return procs.spawn("counter", Counter).get(DEADLINE_S)


class Peer:
    """One connection of a peer that does as it likes."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(path)

    def send(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it was closed before all was sent
            self.sock.sendall(data)

    def rest(self) -> bytes:
        """What the proc still sends, until it closes the connection, as it does once we have."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        found = b""
        with self.sock:
            while True:
                try:
                    data = self.sock.recv(65536)
                except ConnectionResetError:
                    return found
                if not data:
                    return found
                found += data

    def frames(self) -> list[WireFrame]:
        return FrameReader().feed(self.rest())


def reason(frames: list[WireFrame]) -> str:
    """Why the proc closed the connection; empty where it said nothing."""
    last = [frame for frame in frames if frame.kind is Kind.GOODBYE]
    return str(json.loads(bytes(last[-1].body))["reason"]) if last else ""


def call(actor: ActorMesh, name: str, number: int = 1, *args: object, kind: Kind = Kind.CALL) -> bytes:
    body = address_of(actor.actor_id, name) + pickle.dumps((args, {}))
    return b"".join(map(bytes, encode(kind, number, body)))


def header(kind: int = Kind.CALL, buffers: int = 0, length: int = 0, version: int = WIRE_VERSION) -> bytes:
    return HEADER.pack(b"mw", version, kind, buffers, 7, length)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "random bytes": (b"\x00\xff random bytes that are no frame", "no Milkweed frame"),
    "text of another protocol": (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "no Milkweed frame"),
    "a call before the hello": (header(Kind.CALL), "began with CALL and no hello"),
    "a hello of another version": (
        encode_json(Kind.HELLO, {"wire": 99}).replace(bytes([WIRE_VERSION, 1]), b"\x63\x01", 1),
        "speaks wire version 99",
    ),
    "a hello that is no object": (header(Kind.HELLO, length=4) + b"null", "holds no JSON object"),
    "a hello that is nested deep": (header(Kind.HELLO, length=60_000) + b"[" * 60_000, "no JSON object"),
    "a hello that is too large": (header(Kind.HELLO, length=1 << 20), "over the limit"),
    "an unknown kind": (HELLO + header(99), "unknown frame kind 99"),
    "a frame of another version": (HELLO + header(version=9), "speaks wire version 9"),
    "a frame that is too large": (HELLO + header(length=MAX_PAYLOAD + 1), "over the limit"),
    "a length of 64 bits": (HELLO + header(length=(1 << 64) - 1), "over the limit"),
    "too many buffers": (HELLO + header(buffers=1 << 31, length=64), "over the limit"),
    "more buffers than bytes": (HELLO + header(buffers=9, length=8) + bytes(8), "contradict"),
    "lengths that contradict": (
        HELLO + header(buffers=1, length=80) + struct.pack("!2Q", 1 << 60, 1 << 60) + bytes(64),
        "contradict",
    ),
    "a call of nobody": (HELLO + header(length=3) + b"\xff\xff\xff", "names no actor"),
    "a name that is no text": (
        HELLO + header(length=8) + b"\x00\x02\x00\x02\xff\xfe\xff\xfe",
        "names no actor",
    ),
    "a frame that is cut off": (HELLO + header(length=100) + b"x" * 50, "in the middle of a frame"),
    "a header that is cut off": (HELLO + header()[:11], "in the middle of a frame"),
    "a huge frame that is cut off": (
        HELLO + header(length=MAX_PAYLOAD) + b"x" * 50,
        "in the middle of a frame",
    ),
}


def answers(counter: ActorMesh) -> bool:
    return bool(counter.add_in_turn.call_one(0).get(DEADLINE_S) == 0) and counter.add.call_one(0).get(60) == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_peer_is_told_why_and_the_proc_goes_on(counter: ActorMesh, name: str) -> None:
    data, why = HOSTILE[name]
    peer = Peer(counter.addresses()[0].socket)
    peer.send(data)
    frames = peer.frames()
    assert frames[0].kind is Kind.HELLO
    # On a small machine there is no memory for what the header of a huge frame promises.
    assert why in reason(frames) or "larger than memory" in reason(frames)
    assert answers(counter)


def test_two_calls_of_one_number_are_refused(counter: ActorMesh) -> None:
    peer = Peer(counter.addresses()[0].socket)
    peer.send(HELLO + call(counter, "wait_until_opened") + call(counter, "wait_until_opened"))
    assert "two calls of the number 1" in reason(peer.frames())
    assert answers(counter)


@pytest.mark.parametrize(
    "arguments",
    [b"", b"not a pickle", b"\x80\x05N.", pickle.dumps((1, 2, 3)), pickle.dumps(((1,), {"wrong": 1}))[:-3]],
    ids=["nothing", "text", "none", "three", "cut"],
)
def test_arguments_that_are_none_are_the_callers_error(counter: ActorMesh, arguments: bytes) -> None:
    for endpoint in ("add", "add_in_turn"):
        for kind in (Kind.CALL, Kind.TELL):
            peer = Peer(counter.addresses()[0].socket)
            peer.send(HELLO + b"".join(encode(kind, 5, address_of(counter.actor_id, endpoint) + arguments)))
            if kind is Kind.CALL:
                reader = FrameReader()
                got: list[WireFrame] = []
                while len(got) < 2:
                    got += reader.feed(peer.sock.recv(65536))
                assert (got[1].kind, got[1].call) == (Kind.ERROR, 5)
            peer.rest()
    assert answers(counter)


def test_cancels_and_answers_of_nothing_change_nothing(counter: ActorMesh) -> None:
    peer = Peer(counter.addresses()[0].socket)
    nothing = [
        part
        for kind in (Kind.CANCEL, Kind.RESULT, Kind.ERROR)
        for number in (0, 1, (1 << 64) - 1)
        for part in encode(kind, number, b"\x80\x05N.")
    ]
    peer.send(HELLO + b"".join(map(bytes, nothing)) + call(counter, "add", 9, 0))
    reader = FrameReader()
    got: list[WireFrame] = []
    while len(got) < 2:
        got += reader.feed(peer.sock.recv(65536))
    assert (got[1].kind, got[1].call, pickle.loads(got[1].body)) == (Kind.RESULT, 9, 0)
    peer.rest()


def test_many_peers_that_say_nothing_keep_nobody_out(counter: ActorMesh) -> None:
    peers = [Peer(counter.addresses()[0].socket) for _ in range(200)]
    assert answers(counter)
    for peer in peers:
        peer.sock.close()
    assert answers(counter)


def mutated(random_: random.Random, good: list[bytes]) -> bytes:
    """A stream that is near to a good one, or far from any."""
    data = bytearray(HELLO if random_.random() < 0.7 else b"")
    for _ in range(random_.randint(1, 4)):
        one = bytearray(random_.choice(good))
        match random_.randint(0, 6):
            case 0:
                one = bytearray(random_.randbytes(random_.randint(0, 200)))
            case 1:
                del one[random_.randint(0, len(one)) :]
            case 2:  # the header's fields, wild
                field = random_.choice([(0, 2), (2, 1), (3, 1), (4, 4), (8, 8), (16, 8)])
                one[field[0] : sum(field)] = random_.randbytes(field[1])
            case 3:  # lengths that are nearly right
                length = struct.unpack_from("!Q", one, 16)[0] + random_.choice([-8, -1, 1, 8, 64])
                struct.pack_into("!Q", one, 16, max(0, length))
            case 4:  # outside of the pickle: what a mutated pickle does is anybody's guess
                for _ in range(random_.randint(1, 4)):
                    one[random_.randrange(min(len(one), 40))] = random_.randrange(256)
            case 5:
                at = random_.randint(0, len(one))
                one[at:at] = random_.randbytes(random_.randint(1, 30))
            case _:
                pass
        data += one
    return bytes(data)


def fuzz(path: str, seed: int, count: int, make: Callable[[random.Random], bytes]) -> None:
    random_ = random.Random(seed)
    for _ in range(count):
        peer = Peer(path)
        peer.send(make(random_))
        peer.rest()


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.timeout(3600)
def test_no_stream_of_frames_harms_a_proc(procs: ProcMesh, counter: ActorMesh, full_size: bool) -> None:
    seed, count = (random.SystemRandom().randrange(1 << 32), 80_000) if full_size else (20260, 2_000)
    path, pid = counter.addresses()[0].socket, procs.pids[0]
    array = [memoryview(bytes(5000))]
    good = [
        call(counter, "add", 3, 0),
        call(counter, "add_in_turn", 4, 0),
        call(counter, "noted", 5),
        call(counter, "add", 6, 0, kind=Kind.TELL),
        b"".join(
            map(bytes, encode(Kind.CALL, 8, address_of("", "statistics") + pickle.dumps(((), {})), array))
        ),
        b"".join(map(bytes, encode(Kind.CANCEL, 3))),
        encode_json(Kind.GOODBYE, {"reason": "enough"}),
        HELLO,
    ]
    fuzz(path, seed, 200, lambda random_: mutated(random_, good))
    before = memory(pid), descriptors(pid)
    fuzz(path, seed, count, lambda random_: mutated(random_, good))
    assert answers(counter), f"seed {seed}"
    assert procs.pids[0] == pid
    assert memory(pid) - before[0] < 32 * 1024 * 1024, f"seed {seed}"
    assert descriptors(pid) <= before[1] + 2, f"seed {seed}"


REQUESTS = [
    {"op": "ping"},
    {"op": "stacks"},
    {"op": "cancel", "sender": "x", "call": 1},
    {"op": "cancel", "sender": "x", "call": float("inf")},
    {"op": "cancel", "sender": None, "call": "x"},
    {"op": "cancel"},
    {"op": ["ping"]},
    {},
]


def lines(random_: random.Random) -> bytes:
    made = [json.dumps(random_.choice(REQUESTS)).encode() for _ in range(random_.randint(1, 4))]
    made += random_.choices([b"[]", b"null", b"", b"\xff\xfe", b"[" * 50_000, b"1e999", b"{" * 70_000], k=2)
    made.append(random_.randbytes(random_.randint(0, 100)))
    random_.shuffle(made)
    return random_.choice([b"\n", b"\n", b"\r\n", b""]).join(made)[: random_.choice([10, 1000, 200_000])]


@pytest.mark.timeout(3600)
def test_no_line_harms_the_control_socket(procs: ProcMesh, counter: ActorMesh, full_size: bool) -> None:
    seed, count = (random.SystemRandom().randrange(1 << 32), 20_000) if full_size else (20261, 500)
    path = counter.addresses()[0].control
    fuzz(path, seed, count, lines)
    with Peer(path).sock as sock, sock.makefile("rwb") as file:
        for request in REQUESTS:
            file.write(json.dumps(request).encode() + b"\n")
            file.flush()
            assert json.loads(file.readline()), f"seed {seed}"
    while procs.health().get(DEADLINE_S)[0].state != "ok":
        pass
    worker = procs.spawn("worker", Worker).get(DEADLINE_S)
    assert worker.apply.call_one(_control_threads).get(DEADLINE_S) <= 3, f"seed {seed}"


def _control_threads() -> int:
    import threading

    return sum(thread.name == "milkweed-control" for thread in threading.enumerate())
