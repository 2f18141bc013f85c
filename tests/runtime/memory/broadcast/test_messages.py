from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import Conflict, ProtocolError, RemoteFailure, Unavailable
from milkweed.runtime.memory.broadcast.messages import (
    Finish,
    Gone,
    Held,
    Join,
    Joined,
    Lost,
    Message,
    Take,
    There,
    Watch,
    pack,
    unpack,
)
from milkweed.runtime.memory.broadcast.sealing import HEAD_BYTES, Opener, Sealer
from milkweed.runtime.memory.handle import Handle, Machine, Owner

OWNER = Owner(b"t" * 16, 12, Machine("boot", 1, 2), 5, "name", ("10.0.0.1", 99))
HANDLE = Handle(OWNER, 3, 7, b"secret key 16 by", 1000, 3, mappable=True)
MESSAGES: list[Message] = [
    Join(1 << 40, 4096),
    Joined(HANDLE),
    Take(-1, HANDLE, "tcp"),
    Take(2, Handle(Owner(b"x" * 16, 1, Machine("b", 1, 1), 2, "n"), 0, 1, b"k" * 16, 0, 1)),
    Held(3, "tcp"),
    There((1, 5, 2)),
    There(whole=True),
    Finish(),
    Watch(),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert unpack(pack(message)) == message


def test_errors_arrive_with_their_class_and_words() -> None:
    found = unpack(pack(Lost(2, Conflict("buffer_dropped", "gone", "Ask."))))
    assert isinstance(found, Lost)
    assert (type(found.error), str(found.error)) == (Conflict, "buffer_dropped: gone. Ask.")
    other = unpack(pack(Gone(RemoteFailure("internal_error", "odd", "Look."))))
    assert isinstance(other, Gone)
    assert isinstance(other.error, Unavailable)


@given(st.binary(max_size=60) | st.sampled_from([b"[]", b'["Join",{}]', b'["Joined",{"buffer":{}}]', b"7"]))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(data)


def opened(opener: Opener, data: bytes) -> bytes:
    head, rest = data[:HEAD_BYTES], data[HEAD_BYTES:]
    assert Opener.rest(head) == len(rest)
    return opener.open(head, rest)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_what_is_sealed_can_be_opened_in_its_order_and_is_not_to_be_seen(bodies: list[bytes]) -> None:
    sealer, opener = Sealer(b"k" * 32), Opener(b"k" * 32)
    for body in bodies:
        data = sealer.seal(body)
        assert len(body) < 8 or body not in data
        assert opened(opener, data) == body


@given(st.binary(max_size=50), st.data())
def test_what_was_changed_repeated_or_is_of_another_is_refused(body: bytes, data: st.DataObject) -> None:
    sealed = Sealer(b"k" * 32).seal(body)
    changed = bytearray(sealed)
    changed[data.draw(st.integers(HEAD_BYTES, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    opener = Opener(b"k" * 32)
    for wrong in (bytes(changed), Sealer(b"o" * 32).seal(body)):
        with pytest.raises(ProtocolError):
            opened(opener, wrong)
    assert opened(opener, sealed) == body
    with pytest.raises(ProtocolError):
        opened(opener, sealed)


def test_a_message_of_more_than_any_has_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Opener.rest(b"\xff" * HEAD_BYTES)
