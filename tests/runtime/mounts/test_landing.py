"""Memory that others write a reader's bytes into: whose it is, and when it is whose next."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator

import anyio
import pytest

from milkweed.runtime.errors import Conflict
from milkweed.runtime.memory.memory import Memory
from milkweed.runtime.mounts import landing as module
from milkweed.runtime.mounts.landing import Landing, Landings
from milkweed.runtime.node import node
from tests.runtime.memory import peers
from tests.runtime.memory.peers import Peer, open_peer

from .ends import prepared

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


@pytest.fixture
def writer() -> Iterator[Peer]:
    with open_peer() as peer:
        yield peer


def lent(landings: Landings, length: int = MIB) -> Landing:
    found = landings.lend(length)
    assert found is not None
    return found


def test_landings_come_without_what_a_mount_process_has_no_use_for() -> None:
    """While it imports them somebody waits for his bytes."""
    code = (
        "import sys, milkweed.runtime.mounts.host as host; host.Landings().prepare()\n"
        "print(*(name for name in sys.modules if name.startswith('milkweed.')))"
    )
    found = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert "milkweed.runtime.memory.memory" in found
    heavy = ("records", "proc_records", "supervision", "mesh", "memory.broadcast.leading")
    assert [name for name in heavy if f"milkweed.runtime.{name}" in found] == []


async def put(landing: Landing, data: bytes) -> None:
    await pickle.loads(landing.pickled).write_from(data)


def regions() -> int:
    return node().part(Memory, Memory).regions.held


async def test_what_was_written_is_read_and_the_landing_is_lent_again_when_nobody_holds_it() -> None:
    landings = prepared()
    first = lent(landings)
    await put(first, b"first")
    data = first.taken(5)
    part = data[1:3]
    second = lent(landings)
    assert second is not first
    await put(second, b"other")
    assert (bytes(data), bytes(part)) == (b"first", b"ir")
    del data
    assert lent(landings) is not first  # a part of it is held yet
    del part
    assert lent(landings) is first
    landings.close()


async def test_a_write_that_is_late_finds_no_buffer() -> None:
    landings = prepared()
    spoiled = lent(landings)
    spoiled.spoiled()
    next_one = lent(landings)
    assert next_one is not spoiled
    with pytest.raises(Conflict, match="buffer_dropped"):
        await put(spoiled, b"late")
    assert bytes(next_one.taken(4)) == b"\0\0\0\0"
    landings.close()


async def test_a_landing_that_somebody_writes_into_counts_until_that_is_over(writer: Peer) -> None:
    landings = Landings(most=MIB)
    landings.prepare()
    spoiled = lent(landings)
    writer.call(peers.hold_in_transfer, pickle.loads(spoiled.pickled))
    spoiled.spoiled()
    assert landings.lend(MIB) is None
    assert landings.held == MIB
    writer.kill()
    with anyio.fail_after(30):
        while landings.lend(MIB) is None:
            await anyio.sleep(0.001)


async def test_a_drop_that_takes_too_long_is_begun_again(
    writer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DROP_S", 0.01)
    landings = Landings(most=MIB)
    landings.prepare()
    spoiled = lent(landings)
    writer.call(peers.hold_in_transfer, pickle.loads(spoiled.pickled))
    spoiled.spoiled()
    _, first = landings._dropping[0]
    with anyio.fail_after(30):
        while landings.lend(MIB) is None and landings._dropping[0][1] is first:
            await anyio.sleep(0.001)
        writer.call(peers.end_transfer)
        while landings.lend(MIB) is None:
            await anyio.sleep(0.001)


async def test_there_are_no_more_than_so_many_and_none_for_what_is_too_large() -> None:
    landings = Landings(most=5 * MIB)
    landings.prepare()
    large, small = lent(landings, 4 * MIB), lent(landings, 1)
    assert landings.held == 5 * MIB
    assert landings.lend(1) is None
    small.unused()
    assert landings.lend(2 * MIB) is None
    assert lent(landings, MIB) is small
    assert landings.lend(4 * MIB + 1) is None
    large.unused()
    landings.close()
    assert landings.lend(1) is None
    assert Landings(0).lend(1) is None


async def test_those_that_nobody_uses_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    monkeypatch.setattr(module, "_KEEP_S", 0.0)
    before, landings = regions(), prepared()
    held = lent(landings)
    lent(landings).unused()
    with anyio.fail_after(30):
        while landings.held > MIB:
            await anyio.sleep(0.001)
        assert regions() == before + 1
        held.unused()
        while landings.held:
            await anyio.sleep(0.001)
    assert regions() == before


async def test_what_comes_back_after_the_end_is_let_go() -> None:
    before, landings = regions(), prepared()
    taken = lent(landings).taken(1)
    lent(landings).unused()
    landings.close()
    assert regions() == before + 1
    del taken
    with anyio.fail_after(30):
        while regions() > before:
            await anyio.sleep(0.001)


async def test_the_first_one_waits_for_its_modules() -> None:
    landings = Landings()
    with anyio.fail_after(30):
        while (found := landings.lend(1)) is None:
            await anyio.sleep(0.001)
    found.unused()
    landings.close()
