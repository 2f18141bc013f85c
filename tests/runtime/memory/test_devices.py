"""Buffers on devices, and near ends on them: every way there is between two processes of one host."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from milkweed.runtime import RDMAAction, RDMABuffer
from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError, Unavailable
from milkweed.runtime.memory.holding import hold
from milkweed.runtime.memory.staging import PIECE
from tests.runtime.memory import devices, peers
from tests.runtime.memory.devices import Guarded
from tests.runtime.memory.peers import DEADLINE_S, Peer, pattern

SIZE = 3 * PIECE + 4099
PLACES = [(0, 1), (1, 0), (4093, 4099), (PIECE - 1, 2), (0, PIECE), (7, 2 * PIECE + 1), (0, SIZE), (SIZE, 0)]

KINDS = [
    "guarded",
    "cpu",  # torch's calls, without a device
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or HIP device")
    ),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_buffer_on_a_device_is_read_and_written_by_others(mortal: Peer, kind: str, transport: str) -> None:
    buffer = mortal.call(devices.filled_on, kind, 1, SIZE).over(transport)
    expected = bytearray(pattern(1, SIZE).tobytes())
    for seed, (offset, length) in enumerate(PLACES, 2):
        assert peers.read(buffer, offset, length) == expected[offset : offset + length]
        data = pattern(seed, length).tobytes()
        peers.write(buffer, data, offset)
        expected[offset : offset + length] = data
    assert mortal.call(devices.content_of, 1) == expected
    assert "through memory of the host at its owner" in repr(buffer.transport)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of", ["array", "file", "device"])
@pytest.mark.parametrize("transport", ["shared", "process_vm", "unix", "tcp"])
def test_the_near_end_may_be_on_a_device(mortal: Peer, kind: str, transport: str, of: str) -> None:
    if of == "device":
        buffer = mortal.call(devices.filled_on, kind, 1, SIZE)
    else:
        buffer = mortal.call(peers.filled, 1, SIZE, of)
    buffer = buffer.over(transport)
    if (transport == "shared" and of != "file") or (transport == "process_vm" and of == "device"):
        with pytest.raises(Unavailable, match="transport_unusable"):
            devices.read_to(kind, buffer, 0, SIZE)
        return
    expected = bytearray(pattern(1, SIZE).tobytes())
    for seed, (offset, length) in enumerate(PLACES, 2):
        assert devices.read_to(kind, buffer, offset, length) == expected[offset : offset + length]
        devices.write_from(kind, buffer, seed, offset, length)
        expected[offset : offset + length] = pattern(seed, length).tobytes()
    assert mortal.call(devices.content_of if of == "device" else peers.content, 1) == expected
    assert "here" in buffer.transport.staged
    assert ("at its owner" in buffer.transport.staged) == (of == "device")


@pytest.mark.parametrize("kind", KINDS)
def test_the_owner_itself_copies_to_and_from_its_devices(kind: str) -> None:
    memory, content = devices.made(kind, pattern(1, SIZE).tobytes())
    on_device, on_host = RDMABuffer(memory), RDMABuffer(pattern(2, SIZE))
    expected = bytearray(pattern(1, SIZE).tobytes())
    for seed, (offset, length) in enumerate(PLACES, 2):
        assert peers.read(on_device, offset, length) == expected[offset : offset + length]
        assert devices.read_to(kind, on_device, offset, length) == expected[offset : offset + length]
        assert (
            devices.read_to(kind, on_host, 5, length - 5 if length > 5 else 0)
            == pattern(2, SIZE)[5:length].tobytes()
        )
        devices.write_from(kind, on_device, seed, offset, length)
        expected[offset : offset + length] = pattern(seed, length).tobytes()
    assert content() == expected
    assert str(on_device.transport) == "local"
    for buffer in (on_device, on_host):
        buffer.drop().get(DEADLINE_S)


def test_what_is_on_a_device_says_so(mortal: Peer) -> None:
    buffer = mortal.call(devices.filled_on, "guarded", 1, 100)
    assert peers.read(buffer) == pattern(1, 100).tobytes()
    found = buffer.transport
    assert found.name == "unix"
    assert found.passed_over["process_vm"] == "its memory is on guarded:0"
    assert repr(found).startswith("<unix, not measured, through memory of the host at its owner; not local")
    mine = RDMABuffer(Guarded(b"abc"))
    with pytest.raises(InvalidArgument, match=r"unsupported: its memory is on guarded:0\. Use the tensor"):
        _ = mine.memory
    mine.drop().get(DEADLINE_S)


def test_memory_that_is_guarded_is_not_touched_even_by_a_forged_handle(mortal: Peer) -> None:
    buffer = mortal.call(devices.filled_on, "guarded", 1, 100)
    buffer.handle = replace(buffer.handle, device="")
    for transport, code in (("process_vm", "out_of_range"), ("shared", "transport_unusable")):
        with pytest.raises(MilkweedError) as caught:
            peers.read(buffer.over(transport))
        assert caught.value.code == code
    assert peers.read(buffer.over("unix")) == pattern(1, 100).tobytes()
    mortal.begin(devices.touch, 1)
    mortal.process.wait(DEADLINE_S)
    assert mortal.process.returncode == -signal.SIGSEGV  # so the tests above would have seen a touch


def test_transfers_wait_for_what_the_device_has_to_do_first(mortal: Peer) -> None:
    buffer = mortal.call(devices.filled_on, "guarded", 1, 1000)
    mortal.call(devices.keep_busy, 1)
    dst = bytearray(1000)
    with pytest.raises(Unavailable, match="deadline_exceeded"):
        buffer.read_into(dst, timeout=0.3).get(DEADLINE_S)
    reading = buffer.read_into(dst)
    assert not reading.done()
    mortal.call(devices.let_go_on, 1)
    reading.get(DEADLINE_S)
    assert dst == pattern(1, 1000).tobytes()


@pytest.mark.parametrize("transport", ["process_vm", "unix"])
def test_a_near_end_that_is_not_ready_is_waited_for_no_longer_than_the_transfer_may_take(
    mortal: Peer, transport: str
) -> None:
    buffer = mortal.call(peers.filled, 1, 1000).over(transport)
    near = Guarded(bytes(1000))
    near.idle.clear()
    with pytest.raises(Unavailable, match="deadline_exceeded"):
        buffer.read_into(near, timeout=0.2).get(DEADLINE_S)
    cancelled = buffer.read_into(near)
    cancelled.cancel()
    with pytest.raises(Unavailable, match="cancelled"):
        cancelled.get(DEADLINE_S)
    assert near.content == bytes(1000)
    near.idle.set()
    buffer.read_into(near).get(DEADLINE_S)
    assert near.content == pattern(1, 1000).tobytes()


def test_a_drop_does_not_wait_for_a_device_that_does_not_come(mortal: Peer) -> None:
    buffer = mortal.call(devices.filled_on, "guarded", 1, 1000)
    mortal.call(peers.hold, 1, buffer)
    mortal.call(devices.keep_busy, 1)
    reading = buffer.read_into(bytearray(1000))
    mortal.call(peers.drop, 1)
    with pytest.raises(Conflict, match="buffer_dropped"):
        reading.get(DEADLINE_S)


def test_a_device_that_fails_fails_the_transfer_alone(mortal: Peer) -> None:
    buffer = mortal.call(devices.filled_on, "guarded", 1, SIZE)
    mortal.call(devices.break_down, 1, "the device fell off the bus")
    for fail in (lambda: peers.read(buffer), lambda: peers.write(buffer, bytes(10))):
        with pytest.raises(Unavailable) as caught:
            fail()
        assert caught.value.code in ("transfer_failed", "buffer_owner_lost")
    near = Guarded(bytes(10))
    near.fault = "the device fell off the bus"
    other = mortal.call(peers.filled, 2, 10)
    with pytest.raises(
        Unavailable, match=r"transfer_failed: memory on guarded:0: the device fell off the bus"
    ):
        other.read_into(near).get(DEADLINE_S)
    assert peers.read(other) == pattern(2, 10).tobytes()


def test_nothing_of_a_dropped_buffer_is_told_to_a_device_either(mortal: Peer) -> None:
    buffer = mortal.call(peers.filled, 1, 1000)
    mortal.call(peers.drop, 1)
    for length in (0, 10):
        with pytest.raises(Conflict, match="buffer_dropped"):
            buffer.read_into(Guarded(bytes(10)), 0, length).get(DEADLINE_S)


def test_many_transfers_of_devices_are_waited_for_once(mortal: Peer) -> None:
    on_device = mortal.call(devices.filled_on, "guarded", 1, SIZE)
    on_host = mortal.call(peers.filled, 2, SIZE)
    near, far = [Guarded(bytes(1000)) for _ in range(8)], Guarded(pattern(3, 1000).tobytes())
    batch = RDMAAction()
    for at, one in enumerate(near):
        batch.read_remote(one, on_device if at % 2 else on_host, 10_000 * at, 1000)
    batch.write_remote(on_device, far, 200_000).submit().get(DEADLINE_S)
    for at, one in enumerate(near):
        expected = pattern(1 if at % 2 else 2, SIZE)[10_000 * at : 10_000 * at + 1000]
        assert one.content == expected.tobytes()
    assert mortal.call(devices.content_of, 1)[200_000:201_000] == far.content


def test_tensors_of_devices_are_held_as_those_of_the_host_are() -> None:
    with FakeTensorMode():  # shapes and devices alone
        grid = torch.empty(4, 4, device="cuda")
        with pytest.raises(InvalidArgument, match="not contiguous"):
            hold(grid.T)
        with pytest.raises(InvalidArgument, match="unsupported: a tensor on xpu:0"):
            hold(torch.empty(4, device="xpu:0"))


def test_a_tensor_that_is_resized_below_a_buffer_fails_the_transfer() -> None:
    on_torch = devices.OnTorch(pattern(1, 100).tobytes(), "cpu")
    buffer = RDMABuffer(on_torch.memory)
    on_torch.tensor.untyped_storage().resize_(10_000_000)
    with pytest.raises(Unavailable, match="the tensor was resized"):
        peers.read(buffer)
    buffer.drop().get(DEADLINE_S)
