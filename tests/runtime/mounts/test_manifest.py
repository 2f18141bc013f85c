from __future__ import annotations

import itertools
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import ProtocolError
from milkweed.runtime.mounts.deltas import DeltaLog, apply, difference, merged
from milkweed.runtime.mounts.manifest import DIRECTORY, FILE, Change, Entry, Manifest
from milkweed.runtime.mounts.packing import (
    pack_delta,
    pack_manifest,
    unpack,
    unpack_delta,
    unpack_manifest,
)

from .stage import names_of_every_kind
from .trees import manifests

_FILE = Entry(FILE, 0o644, 3, 5, 7)
_FOLDER = Entry(DIRECTORY, 0o755, 0, 5, 0)


@given(manifests())
def test_a_manifest_crosses_unchanged(manifest: Manifest) -> None:
    assert unpack_manifest(pack_manifest(manifest)) == manifest
    assert unpack(pack_manifest(manifest)) == manifest


@given(manifests(), manifests())
def test_a_difference_makes_one_tree_of_the_other(old: Manifest, new: Manifest) -> None:
    delta = unpack_delta(pack_delta(difference(old, new)))
    assert delta == difference(old, new)
    apply(old, delta)
    assert old == new


@given(st.lists(manifests(), min_size=2, max_size=5))
def test_deltas_in_a_row_are_one_delta(trees: list[Manifest]) -> None:
    for at, tree in enumerate(trees):
        tree.revision = at
    deltas = [difference(old, new) for old, new in itertools.pairwise(trees)]
    log = DeltaLog()
    for delta in deltas:
        log.add(delta)
    for start, tree in enumerate(trees[:-1]):
        found = log.since(start)
        assert found is not None
        now = deepcopy(tree)
        apply(now, found)
        assert now == trees[-1]
    assert merged(deltas).base == 0


@given(manifests(), manifests())
def test_changes_are_told_as_they_are(old: Manifest, new: Manifest) -> None:
    before = dict(old.walk())
    after = dict(new.walk())
    known = dict(before)
    for change in apply(old, difference(old, new)):
        if not change.name:
            continue
        path = change.directory + b"/" + change.name if change.directory else change.name
        assert known.get(path) == change.before
        known[path] = change.after  # type: ignore[assignment]
    assert {path: entry for path, entry in known.items() if entry is not None} == after


def test_what_is_removed_takes_all_below_it_deepest_first() -> None:
    manifest = Manifest()
    for path, entry in ((b"d", _FOLDER), (b"d/e", _FOLDER), (b"d/e/f", _FILE), (b"d2", _FILE)):
        manifest.put(path, entry)
    assert manifest.remove(b"d") == [
        Change(b"d/e", b"f", _FILE, None),
        Change(b"d", b"e", _FOLDER, None),
        Change(b"", b"d", _FOLDER, None),
    ]
    assert dict(manifest.walk()) == {b"d2": _FILE}
    assert manifest.remove(b"nothing") == []


def test_an_entry_without_its_directory_is_not_taken() -> None:
    manifest = Manifest()
    assert manifest.put(b"nowhere/file", _FILE) is None
    assert len(manifest) == 0


def test_a_log_forgets_what_is_too_much_and_says_so() -> None:
    trees = [Manifest(revision=at) for at in range(5)]
    for at, tree in enumerate(trees):
        tree.put(b"file", _FILE._replace(version=at + 1))
    log = DeltaLog(most_changes=2)
    for old, new in itertools.pairwise(trees):
        log.add(difference(old, new))
    assert log.since(0) is None
    assert log.since(2) is not None
    assert log.since(99) is None


def test_names_of_every_kind_cross() -> None:
    manifest = Manifest(epoch=2**63, revision=9)
    for name in names_of_every_kind():
        manifest.put(name, _FILE)
    assert unpack_manifest(pack_manifest(manifest)) == manifest


def test_fifty_thousand_files_are_a_few_megabytes() -> None:
    manifest = Manifest()
    for folder in range(500):
        manifest.put(b"package-%03d" % folder, _FOLDER)
        for file in range(100):
            entry = Entry(FILE, 0o644, file * 1000, 10**18 + file, 2**62 + folder * 100 + file)
            manifest.put(b"package-%03d/a_module_of_some_name_%d.py" % (folder, file), entry)
    packed = pack_manifest(manifest)
    assert len(packed) < 4_000_000
    assert unpack_manifest(packed) == manifest


@given(manifests(), st.data())
def test_what_was_cut_or_is_something_else_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    packed = pack_manifest(manifest)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(ProtocolError):
        unpack_manifest(cut)
    with pytest.raises(ProtocolError):
        unpack_delta(packed)
