"""One buffer to many processes: what arrives, what whoever asked is told, what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from milkweed.runtime import Future, RDMABuffer, Received, ValueMesh, broadcast_buffer
from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError, Unavailable
from milkweed.runtime.extent import Extent
from milkweed.runtime.memory.broadcast import leading
from milkweed.runtime.region import Region
from tests.runtime.memory import devices, peers
from tests.runtime.memory.broadcast import stage
from tests.runtime.memory.broadcast.stage import SIZE, filling, on_host, open_peers, reaches, right, until
from tests.runtime.memory.devices import Guarded
from tests.runtime.memory.peers import DEADLINE_S, Peer, pattern

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def three() -> Iterator[list[Peer]]:
    """Receivers that tests leave alive."""
    with open_peers(3) as found:
        yield found


@pytest.fixture
def mortals() -> Iterator[list[Peer]]:
    with open_peers(3) as found:
        yield found


def receivers(owners: list[Peer], *hosts: int) -> list[RDMABuffer]:
    """A buffer of each, on hosts of those numbers."""
    made = [owner.call(peers.filled, 1, SIZE) for owner in owners]
    return [on_host(buffer, host) for buffer, host in zip(made, hosts, strict=True)]


async def ended(moving: Future[ValueMesh[Received]]) -> ValueMesh[Received]:
    with anyio.fail_after(DEADLINE_S):
        return await moving


def held(owners: list[Peer]) -> list[int]:
    """How many regions each keeps: of a broadcast that has ended, none."""
    return [owner.call(peers.held) for owner in owners]


def code(outcome: object) -> str:
    assert isinstance(outcome, MilkweedError), outcome
    return outcome.code


async def test_buffers_on_devices_are_filled_and_passed_on(three: list[Peer]) -> None:
    source = RDMABuffer(Guarded(pattern(5, SIZE).tobytes()))
    into = [
        on_host(owner.call(devices.filled_on, "guarded", 1, SIZE + 100), host)
        for host, owner in enumerate(three, 1)
    ]
    received = (await ended(broadcast_buffer(source, into))).values()
    assert [one.taken_from for one in received] == [None, 0, 1]
    expected = pattern(5, SIZE).tobytes() + pattern(1, SIZE + 100).tobytes()[SIZE:]
    for owner in three:
        assert owner.call(devices.content_of, 1) == expected
        owner.call(devices.drop_on, 1)
    await source.drop()


async def test_every_receiver_has_all_of_it_and_hosts_pass_it_on(three: list[Peer]) -> None:
    data = pattern(5, SIZE)
    source = RDMABuffer(data)
    into = receivers(three, 1, 2, 2)
    received = (await ended(broadcast_buffer(source, into))).values()
    assert [one.taken_from for one in received] == [None, 0, 1]
    assert all(one.transport for one in received)
    for owner in three:
        assert owner.call(peers.content, 1) == data.tobytes()
    await source.drop()


async def test_ranks_keep_their_shape_and_those_that_have_an_error_keep_it(three: list[Peer]) -> None:
    source = RDMABuffer(pattern(6, SIZE))
    region = Region.of(Extent(hosts=2, gpus=2))
    into = dict(zip((0, 2, 3), receivers(three, 1, 2, 2), strict=True))
    none = ValueError("no buffer")
    received = await ended(broadcast_buffer(source, ValueMesh(region, into, {1: none})))
    assert received.errors() == {1: none}
    assert {rank: one.taken_from for rank, one in received.ok().items()} == {0: None, 2: 0, 3: 2}
    await source.drop()


async def test_receivers_in_the_process_of_the_source_and_a_part_of_a_larger_buffer(
    three: list[Peer],
) -> None:
    data, mine, larger = pattern(7, SIZE), np.zeros(SIZE, np.uint8), np.zeros(SIZE + 100, np.uint8)
    into = [RDMABuffer(mine), RDMABuffer(larger), RDMABuffer(SIZE)]
    source = RDMABuffer(data)
    received = (await ended(broadcast_buffer(source, into))).values()
    assert {(one.taken_from, one.transport) for one in received} == {(None, "local")}
    assert (mine == data).all()
    assert (larger[:SIZE] == data).all()
    assert not larger[SIZE:].any()
    assert into[2].memory == data.tobytes()
    for buffer in (*into, source):
        await buffer.drop()


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1])
def test_one_receiver_and_any_size_in_sync_code(three: list[Peer], size: int) -> None:
    source, into = RDMABuffer(pattern(8, size)), three[0].call(peers.filled, 2, size)
    received = broadcast_buffer(source, [into]).get(DEADLINE_S).values()
    assert received[0].taken_from is None
    assert three[0].call(peers.content, 2) == pattern(8, size).tobytes()
    source.drop().get(DEADLINE_S)


async def test_nobody_to_receive_it_is_refused_and_no_rank_that_could_is_not(three: list[Peer]) -> None:
    source, none = RDMABuffer(10), ValueError("no buffer")
    with pytest.raises(InvalidArgument, match="buffers=0"):
        await broadcast_buffer(source, [])
    region = Region.of(Extent(gpus=1))
    assert (await ended(broadcast_buffer(source, ValueMesh(region, {}, {0: none})))).errors() == {0: none}
    await source.drop()


async def test_what_cannot_be_is_refused_before_anything_is_moved(three: list[Peer]) -> None:
    source, into = RDMABuffer(pattern(9, SIZE)), three[0].call(peers.filled, 3, SIZE)
    before = three[0].call(peers.content, 3)
    small = RDMABuffer(SIZE - 1)
    sealed, unreadable = RDMABuffer(bytes(SIZE)), RDMABuffer(bytearray(SIZE), read=False)
    for wrong, expected in ((small, "out_of_range"), (sealed, "access_refused"), (into, "given twice")):
        with pytest.raises((InvalidArgument, Conflict), match=expected.replace("given twice", "too")):
            await broadcast_buffer(source, [into, wrong])
    with pytest.raises(Conflict, match="access_refused"):
        await broadcast_buffer(unreadable, [into])
    with pytest.raises(InvalidArgument, match="bytearray"):
        await broadcast_buffer(source, [into, bytearray(SIZE)])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="the source too"):
        await broadcast_buffer(source, [source])
    with pytest.raises(InvalidArgument, match="a single RDMABuffer"):
        await broadcast_buffer(source, into)  # type: ignore[arg-type]
    assert three[0].call(peers.content, 3) == before
    for buffer in (source, small, sealed, unreadable):
        await buffer.drop()


async def test_a_dropped_destination_is_an_error_of_its_rank_alone(three: list[Peer]) -> None:
    with filling(10) as source:
        into = receivers(three, 1, 2, 3)
        moving = broadcast_buffer(source.buffer, into)
        source.add(source.half)
        await reaches(into[2], source, source.half)
        await anyio.to_thread.run_sync(three[1].call, peers.drop, 1)
        source.add(source.rest)
        received = await ended(moving)
        assert {rank: code(error) for rank, error in received.errors().items()} == {1: "buffer_dropped"}
        assert right(into[0], source)
        assert right(into[2], source)


async def test_those_behind_a_killed_receiver_finish_and_it_alone_has_an_error(mortals: list[Peer]) -> None:
    with filling(11) as source:
        into = receivers(mortals, 1, 2, 3)
        moving = broadcast_buffer(source.buffer, into)
        source.add(source.half)
        await reaches(into[2], source, source.half)
        await anyio.to_thread.run_sync(mortals[1].kill)
        source.add(source.rest)
        received = await ended(moving)
        assert {rank: code(error) for rank, error in received.errors().items()} == {1: "buffer_owner_lost"}
        assert str(mortals[1].pid) in str(received.errors()[1])
        assert {rank: one.taken_from for rank, one in received.ok().items()} == {0: None, 2: 0}
        assert right(into[2], source)


async def test_another_of_its_host_goes_on_for_a_killed_one(mortals: list[Peer]) -> None:
    with filling(12) as source:
        into = receivers(mortals, 1, 1, 2)
        moving = broadcast_buffer(source.buffer, into)
        source.add(source.half)
        await reaches(into[2], source, source.half)
        await anyio.to_thread.run_sync(mortals[0].kill)
        source.add(source.rest)
        received = await ended(moving)
        assert {rank: code(error) for rank, error in received.errors().items()} == {0: "buffer_owner_lost"}
        assert {rank: one.taken_from for rank, one in received.ok().items()} == {1: None, 2: 1}


async def test_those_behind_a_stopped_receiver_finish_and_it_is_not_waited_for_longer(
    mortals: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "GIVE_UP_S", leading.SILENT_S + 1)
    monkeypatch.setattr(leading, "FINISH_S", 0.5)
    with filling(13) as source:
        into = receivers(mortals, 1, 2, 3)
        moving = broadcast_buffer(source.buffer, into)
        source.add(source.half)
        await reaches(into[2], source, source.half)
        await anyio.to_thread.run_sync(mortals[1].stop)
        source.add(source.rest)
        received = await ended(moving)
        assert {rank: code(error) for rank, error in received.errors().items()} == {1: "deadline_exceeded"}
        assert right(into[2], source)
        mortals[1].go_on()
        await until(lambda: bool(mortals[1].call(peers.held) == 1))


async def test_a_source_that_is_dropped_is_an_error_of_every_rank(three: list[Peer]) -> None:
    with filling(14) as source:
        into = receivers(three, 1, 2, 3)
        moving = broadcast_buffer(source.buffer, into)
        source.add(source.half)
        await reaches(into[2], source, source.half)
        await source.buffer.drop()
        received = await ended(moving)
        assert [code(error) for error in received.errors().values()] == ["buffer_dropped"] * 3


async def test_a_source_that_ended_is_an_error_of_every_rank(three: list[Peer], mortals: list[Peer]) -> None:
    source = mortals[0].call(peers.filled, 1, SIZE)
    await anyio.to_thread.run_sync(mortals[0].kill)
    received = await ended(broadcast_buffer(source, receivers(three, 1, 2, 3)))
    assert [code(error) for error in received.errors().values()] == ["buffer_owner_lost"] * 3


async def test_a_receiver_whose_network_this_process_is_not_in_is_not_said_to_have_ended(
    three: list[Peer],
) -> None:
    source, into = RDMABuffer(10), three[0].call(peers.filled, 4, 10)
    owner = into.handle.owner
    inside = replace(owner.machine, network=owner.machine.network + 1, simulated=True)
    # At the same address here listens something else, or, as at most addresses, nothing.
    into.handle = replace(into.handle, owner=replace(owner, machine=inside, tcp=("127.0.0.1", 1)))
    (error,) = (await ended(broadcast_buffer(source, [into]))).errors().values()
    assert code(error) == "transport_unusable"
    assert "network of simulated hosts" in str(error)
    await source.drop()


async def test_a_timeout_is_an_error_of_those_that_have_not_all(three: list[Peer]) -> None:
    with filling(15) as source:
        into = receivers(three, 1, 2, 3)
        before_it = held(three)
        received = await ended(broadcast_buffer(source.buffer, into, timeout=0.5))
        assert [code(error) for error in received.errors().values()] == ["deadline_exceeded"] * 3
        await until(lambda: held(three) == before_it)


async def test_no_receiver_is_waited_for_of_which_nothing_was_asked_yet(
    three: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "FINISH_S", 10 * DEADLINE_S)
    source = RDMABuffer(pattern(5, SIZE))
    into = receivers(three, 1, 2, 3)
    received = await ended(broadcast_buffer(source, into, timeout=0.0))
    assert [code(error) for error in received.errors().values()] == ["deadline_exceeded"] * 3
    with anyio.fail_after(DEADLINE_S):
        await source.drop()


async def test_nothing_is_written_after_a_cancel(three: list[Peer]) -> None:
    with filling(16) as source:
        into = receivers(three, 1, 2, 3)
        before_it = held(three)
        moving = broadcast_buffer(source.buffer, into)
        source.add(source.half)
        await reaches(into[2], source, source.half)
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                await moving

            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert moving.done()
        before = [owner.call(peers.content, 1) for owner in three]
        source.add(source.rest)
        with pytest.raises(Unavailable, match="cancelled"):
            await moving
        await until(lambda: held(three) == before_it)
        assert [owner.call(peers.content, 1) for owner in three] == before


async def test_receivers_stop_when_whoever_leads_them_is_killed(
    three: list[Peer], mortals: list[Peer]
) -> None:
    with filling(17) as source:
        into = receivers(three, 1, 2, 3)
        before_it = held(three)
        await anyio.to_thread.run_sync(mortals[0].call, stage.begin_broadcast, source.buffer, into)
        source.add(source.half)
        await reaches(into[2], source, source.half)
        await anyio.to_thread.run_sync(mortals[0].kill)
        await until(lambda: held(three) == before_it)


async def test_many_broadcasts_at_once_do_not_disturb_each_other(three: list[Peer]) -> None:
    seeds = range(20, 26)
    sources = {seed: RDMABuffer(pattern(seed, 1_000_001)) for seed in seeds}
    into = {seed: [owner.call(peers.filled, seed, 1_000_001) for owner in three] for seed in seeds}
    for number, moving in [(seed, broadcast_buffer(sources[seed], into[seed])) for seed in seeds]:
        assert not (await ended(moving)).errors(), number
    for seed in seeds:
        data = pattern(seed, 1_000_001).tobytes()
        assert all(owner.call(peers.content, seed) == data for owner in three)
        await sources[seed].drop()
