from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import ProtocolError
from milkweed.runtime.memory.protocol import (
    HELLO_BYTES,
    REPLY_BYTES,
    REQUEST_BYTES,
    Request,
    Session,
    hello,
    mesh_of,
    nonce_of,
)

KEY, OTHER = b"k" * 16, b"o" * 16
requests = st.builds(
    Request,
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    rdma=st.booleans(),
    staged=st.booleans(),
    area=st.integers(0, 255),
)


def session(secret: bytes = b"s", token: bytes = b"t" * 16, asking: bytes = b"a" * 32) -> Session:
    return Session(secret, token, asking, b"b" * 32)


@given(requests, st.integers(1, 2**64 - 1))
def test_a_request_arrives_as_it_was_sent(request: Request, number: int) -> None:
    data = session().request(request, KEY, number)
    assert len(data) == REQUEST_BYTES
    assert session().read_request(data, number) == request
    assert session().is_signed(data, KEY)


@given(requests, st.integers(0, REQUEST_BYTES * 8 - 1))
def test_a_request_with_any_bit_changed_is_not_signed(request: Request, bit: int) -> None:
    data = bytearray(session().request(request, KEY, 1))
    data[bit // 8] ^= 1 << bit % 8
    assert not session().is_signed(bytes(data), KEY)


def test_a_code_is_good_for_one_key_one_mesh_one_owner_and_one_connection() -> None:
    data = session().request(Request(False, 1, 2, 3, 4), KEY, 1)
    assert not session().is_signed(data, OTHER)
    for other in (session(b"x"), session(token=b"x" * 16), session(asking=b"x" * 32)):
        assert not other.is_signed(data, KEY)
        assert other.asking_proof != session().asking_proof
        assert other.serving_proof != session().serving_proof
    assert session().asking_proof != session().serving_proof


@given(st.binary(min_size=REQUEST_BYTES, max_size=REQUEST_BYTES))
def test_random_requests_are_refused_or_not_signed(data: bytes) -> None:
    try:
        session().read_request(data, 1)
    except ProtocolError:
        return
    assert not session().is_signed(data, KEY)


@pytest.mark.parametrize("status", [0, 1, 8])
def test_a_reply_counts_only_from_who_knows_the_key(status: int) -> None:
    key = KEY if status == 0 else None
    data = session().reply(status, 7, key, 5)
    assert len(data) == REPLY_BYTES
    assert session().read_reply(data, 7, KEY, 0) == (status, 5)
    for wrong in (
        session().reply(status, 7, OTHER, 5),
        session().reply(status, 8, key, 5),
        session(b"x").reply(status, 7, key, 5),
        data[:-1] + bytes([data[-1] ^ 1]),
    ):
        with pytest.raises(ProtocolError):
            session().read_reply(wrong, 7, KEY, 0)


def test_a_peer_that_speaks_of_something_else_is_refused() -> None:
    assert nonce_of(hello(b"n" * 32, "mesh-a")) == b"n" * 32
    with pytest.raises(ProtocolError, match="does not speak"):
        nonce_of(b"GET / HTTP/1.1\r\n".ljust(HELLO_BYTES))


def test_a_hello_names_its_mesh_to_those_who_know_it() -> None:
    data = hello(b"n" * 32, "mesh-a")
    assert mesh_of(data, ("mesh-b", "mesh-a", "")) == "mesh-a"
    assert mesh_of(data, ("mesh-b", "")) is None
    assert mesh_of(hello(b"n" * 32, ""), ("mesh-b", "")) == ""
    assert b"mesh-a" not in data
