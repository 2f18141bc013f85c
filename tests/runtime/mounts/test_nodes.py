from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.mounts.deltas import apply, difference
from milkweed.runtime.mounts.manifest import DIRECTORY, FILE, Entry, Manifest
from milkweed.runtime.mounts.nodes import ROOT, Invalid, Node, NodeTable

from .trees import manifests

_FILE = Entry(FILE, 0o644, 3, 5, 7)
_FOLDER = Entry(DIRECTORY, 0o755, 0, 5, 0)


def _table() -> NodeTable:
    manifest = Manifest()
    for path, entry in ((b"d", _FOLDER), (b"d/f", _FILE), (b"g", _FILE)):
        manifest.put(path, entry)
    return NodeTable(manifest)


def manifest_of(table: NodeTable) -> Manifest:
    assert isinstance(table._view, Manifest)
    return table._view


def _look_up(table: NodeTable, *names: bytes) -> Node:
    number = ROOT
    for name in names:
        node = table.look_up(number, name)
        assert node is not None
        number = node.number
    found = table.node(number)
    assert found is not None
    return found


def _change(table: NodeTable, path: bytes, entry: Entry | None) -> list[Invalid]:
    new = deepcopy(manifest_of(table))
    if entry is None:
        new.remove(path)
    else:
        new.put(path, entry)
    return table.changed(apply(manifest_of(table), difference(manifest_of(table), new)))


def test_a_new_version_has_a_new_number_and_the_old_one_stays_what_it_was() -> None:
    table = _table()
    folder, old = _look_up(table, b"d"), _look_up(table, b"d", b"f")
    assert _change(table, b"d/f", _FILE._replace(version=8)) == [Invalid(folder.number, b"f")]
    new = _look_up(table, b"d", b"f")
    assert new.number != old.number
    assert old.file.version == 7
    assert old.is_gone
    assert new.file.version == 8
    assert table.node(old.number) is old


def test_a_directory_keeps_its_number_and_its_attributes_are_invalid() -> None:
    table = _table()
    folder = _look_up(table, b"d")
    assert _change(table, b"d", _FOLDER._replace(mtime_ns=6)) == [Invalid(folder.number, b"")]
    assert _look_up(table, b"d") is folder
    assert folder.entry.mtime_ns == 6
    assert _change(table, b"", _FOLDER._replace(mode=0o700)) == [Invalid(ROOT, b"")]


def test_a_name_that_comes_is_invalid_since_the_kernel_may_know_that_it_was_not_there() -> None:
    table = _table()
    assert table.look_up(ROOT, b"new") is None
    assert _change(table, b"new", _FILE) == [Invalid(ROOT, b"new")]
    assert _look_up(table, b"new").file.version == 7


def test_what_the_kernel_does_not_know_is_not_told() -> None:
    table = _table()
    assert _change(table, b"d/f", None) == []  # it has never asked for d
    _look_up(table, b"d")
    assert _change(table, b"d/g", _FILE) != []


def test_a_directory_that_went_and_came_again_is_another() -> None:
    table = _table()
    folder, file = _look_up(table, b"d"), _look_up(table, b"d", b"f")
    _change(table, b"d", None)
    assert table.look_up(folder.number, b"f") is None
    _change(table, b"d", _FOLDER)
    again = _look_up(table, b"d")
    assert again.number not in {folder.number, file.number}
    assert table.look_up(folder.number, b"f") is None
    assert folder.is_gone
    assert not again.is_gone


def test_what_the_kernel_has_forgotten_is_forgotten() -> None:
    table = _table()
    for _ in range(3):
        number = _look_up(table, b"g").number
    table.untold(number, 2)
    assert table.node(number) is not None
    table.untold(number)
    assert table.node(number) is None
    assert _look_up(table, b"g").number > number
    table.untold(ROOT, 99)
    assert table.node(ROOT) is not None
    table.untold(12345)


@given(manifests(), st.lists(manifests(), max_size=4))
def test_a_kernel_that_heeds_what_it_is_told_never_shows_something_old(
    first: Manifest, later: list[Manifest]
) -> None:
    """A kernel that keeps every answer for ever, but for what is invalid."""
    table = NodeTable(deepcopy(first))
    names: dict[tuple[int, bytes], int | None] = {}
    attributes: dict[int, Entry] = {}

    def look_up(parent: int, name: bytes) -> int | None:
        if (parent, name) not in names:
            node = table.look_up(parent, name)
            names[parent, name] = node.number if node is not None else None
            if node is not None:
                attributes.setdefault(node.number, node.entry)
        return names[parent, name]

    every = sorted(
        {name for tree in (first, *later) for content in tree.directories.values() for name in content}
    )

    def shown(number: int, path: bytes) -> dict[bytes, Entry]:
        found: dict[bytes, Entry] = {}
        for name in every:
            below = look_up(number, name)
            if below is None:
                continue
            inside = path + b"/" + name if path else name
            found[inside] = attributes[below]
            if attributes[below].kind == DIRECTORY:
                found |= shown(below, inside)
        return found

    assert shown(ROOT, b"") == dict(first.walk())
    for tree in later:
        for invalid in table.changed(apply(manifest_of(table), difference(manifest_of(table), tree))):
            if invalid.name:
                names.pop((invalid.number, invalid.name), None)
            elif (node := table.node(invalid.number)) is not None:
                attributes[invalid.number] = node.entry
        assert shown(ROOT, b"") == dict(tree.walk())
