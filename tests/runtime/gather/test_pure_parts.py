"""What of a gather mount needs no host and no kernel."""

from __future__ import annotations

import stat

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.gather.attributes import Attributes, Page, pack, pack_one, unpack, unpack_one
from milkweed.runtime.gather.following import Following
from milkweed.runtime.gather.lives import MOST_ENTRIES, Lives
from milkweed.runtime.gather.nodes import ROOT, Nodes

_U64 = st.integers(0, 2**64 - 1)
_U32 = st.integers(0, 2**32 - 1)
_NS = st.integers(-(2**63), 2**63 - 1)
_NAMES = st.binary(min_size=1, max_size=20).filter(lambda name: not set(name) & {0, 47})
_KINDS = st.sampled_from([stat.S_IFREG, stat.S_IFDIR, stat.S_IFIFO])
_OTHERS = st.builds(Attributes, _U64, _U64, _U64, _NS, _NS, _U64, _KINDS, _U32, _U32, _U32, st.just(b""))
_LINKS = st.builds(
    Attributes, _U64, _U64, _U64, _NS, _NS, _U64, st.just(stat.S_IFLNK | 0o777), _U32, _U32, _U32,
    st.binary(min_size=1, max_size=30).filter(lambda target: 0 not in target),
)  # fmt: skip


def _file(number: int = 1, size: int = 10, device: int = 1) -> Attributes:
    return Attributes(device, number, size, 5, 5, 8, stat.S_IFREG | 0o644, 1, 0, 0)


@given(st.dictionaries(_NAMES, st.one_of(_OTHERS, _LINKS), max_size=20), st.booleans())
def test_a_page_arrives_as_it_was_sent(found: dict[bytes, Attributes], more: bool) -> None:
    entries = sorted(found.items())
    assert unpack(pack(entries, more)) == (entries, more)


@given(st.one_of(_OTHERS, _LINKS))
def test_attributes_arrive_as_they_were_sent(one: Attributes) -> None:
    assert unpack_one(memoryview(pack_one(one))) == one


def test_an_entry_is_believed_for_its_life_and_no_longer() -> None:
    lives = Lives(1.0)
    lives.listed((0, b"d"), unpack(pack([(b"a", _file())], False)), now=10.0)
    assert lives.find((0, b"d"), b"a", 10.25) == (_file(), 0.75)
    assert lives.find((0, b"d"), b"a", 11.0) is None
    assert lives.find((0, b"d"), b"b", 10.25) is None
    assert lives.find((1, b"d"), b"a", 10.25) is None


def test_who_asks_for_many_entries_of_a_directory_is_better_served_by_all() -> None:
    lives, directory = Lives(1.0), (0, b"d")
    entries = [(b"%04d" % number, _file(number)) for number in range(1000)]
    lives.listed(directory, unpack(pack(entries, False)), now=0.0)
    assert not lives.is_worth_listing(directory, 1.5)
    for name, _ in entries[:20]:
        lives.find(directory, name, 1.5)
    assert lives.is_worth_listing(directory, 1.5)
    assert not lives.is_worth_listing(directory, 100.0)  # that was long ago
    assert lives.remembered(directory) is None


def test_of_many_large_directories_the_oldest_are_forgotten() -> None:
    lives = Lives(1.0)
    entries = [(b"%d" % number, _file(number)) for number in range(MOST_ENTRIES // 2)]
    page = unpack(pack(entries, False))
    for directory in (b"first", b"second", b"third"):
        lives.listed((0, directory), page, now=0.0)
    assert [lives.remembered((0, name)) is None for name in (b"first", b"second", b"third")] == [
        True, False, False,
    ]  # fmt: skip


def test_of_many_empty_directories_the_oldest_are_forgotten() -> None:
    lives = Lives(1.0)
    for number in range(MOST_ENTRIES + 1):
        lives.listed((0, b"%d" % number), Page([], False), 10.0)
    assert lives.remembered((0, b"0")) is None
    assert lives.remembered((0, b"%d" % MOST_ENTRIES)) is not None


def test_another_file_of_the_same_name_has_another_number() -> None:
    nodes = Nodes((0, 3))
    parent = nodes.hosts[b"3"]
    first = nodes.told(parent, b"log", _file(1), 0.0)
    assert nodes.told(parent, b"log", _file(1, size=20), 0.0) is first
    assert first.attributes == _file(1, size=20)
    second = nodes.told(parent, b"log", _file(2, size=21), 0.0)
    assert second.number != first.number
    assert nodes.told(nodes.hosts[b"0"], b"log", _file(1), 0.0).number not in (first.number, second.number)
    assert (second.directory, second.name) == ((3, b""), b"log")


def test_a_file_whose_number_its_file_system_forgot_is_the_same_while_nothing_was_written() -> None:
    nodes = Nodes((0,))
    host = nodes.hosts[b"0"]
    first = nodes.told(host, b"a", _file(1), 0.0)
    assert nodes.told(host, b"a", _file(2), 0.0) is first
    assert nodes.told(host, b"a", _file(2, size=20), 0.0) is first  # by that number it grew
    assert nodes.told(host, b"a", _file(3, size=21), 0.0) is not first
    folder = _file(1)._replace(mode=stat.S_IFDIR | 0o755)
    directory = nodes.told(host, b"d", folder, 0.0)
    assert nodes.told(host, b"d", folder._replace(number=9, ctime_ns=77), 0.0) is directory


def test_a_number_lives_until_the_kernel_has_forgotten_it_as_often_as_it_heard_of_it() -> None:
    nodes = Nodes((0,))
    host = nodes.hosts[b"0"]
    node = nodes.told(host, b"a", _file(), 0.0)
    nodes.told(host, b"a", _file(), 0.0)
    nodes.untold(node.number, 1)
    assert nodes.get(node.number) is node
    nodes.untold(node.number, 1)
    assert nodes.get(node.number) is None
    nodes.untold(host.number, 5)
    assert nodes.get(host.number) is host  # hosts stay
    assert nodes.get(ROOT) is None
    assert len(nodes) == 1


def test_more_and_more_small_files_come_with_those_that_are_opened_in_order() -> None:
    following = Following()
    entries = {b"%03d" % number: _file(number) for number in range(100)}
    entries[b"005"] = _file(5, size=1_000_000)
    names = sorted(entries)
    directory = (0, b"d")
    assert following.after(directory, b"000", names, entries) == []
    first = following.after(directory, b"001", names, entries)
    assert first == [name for name in names[2:11] if name != b"005"]
    second = following.after(directory, b"011", names, entries)
    assert second == names[12:28]
    assert following.after(directory, b"099", names, entries) == []  # a jump
    assert following.after((1, b"d"), b"029", names, entries) == []
