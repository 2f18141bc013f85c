"""What changed between two looks at the index."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.index import Index
from milkweed.runtime.pulse import Changes, Glance, compare
from milkweed.runtime.records import HostEvent, MeshSpec, RankView, RunView

SPEC = MeshSpec("a", 2, 2, workspace="/w")
STAMPS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index(tmp_path / "index.sqlite")
    yield opened
    opened.close()


def a_run(mesh: str, name: str = "run-1") -> RunView:
    return RunView(name, mesh, "running", "spmd", "train", (RankView(0, 0, "running", 1),), time.time())


@given(STAMPS, STAMPS)
def test_what_came_went_or_is_another_is_told_and_nothing_else(
    before: dict[str, str], after: dict[str, str]
) -> None:
    told = compare(Glance(meshes=before), Glance(meshes=after)).meshes
    assert told == {key for key in "abcd" if before.get(key) != after.get(key)}


def test_lists_change_by_what_comes_and_goes_and_not_by_a_new_state() -> None:
    one = Glance(meshes={"m": "1"}, runs={"r": "1"})
    assert not compare(one, replace(one, meshes={"m": "2"}, runs={"r": "2"})).listed
    assert not compare(one, replace(one, runs={})).listed  # it ended; it is still there to be read
    assert compare(one, replace(one, meshes={})).listed
    assert compare(one, replace(one, runs={"r": "1", "s": "1"})).listed


def test_a_look_at_the_index_tells_states_runs_and_events(index: Index, tmp_path: Path) -> None:
    mesh = index.claim(SPEC)[0].mesh
    before, version = index.glance(), index.version()
    assert index.version() == version
    assert before.names == {"a": mesh}
    keeper = Index(tmp_path / "index.sqlite")
    keeper.put_run(a_run(mesh))
    keeper.add_events(mesh, 1, (HostEvent(1, 0.0, "rank_started", "run-1"),))
    assert index.version() != version
    after = index.glance()
    assert compare(before, after) == Changes(runs=frozenset({"run-1"}), events=frozenset({mesh}), listed=True)
    keeper.set_state(mesh, "released", "")
    keeper.put_run(replace(a_run(mesh), state="succeeded"))
    keeper.close()
    last = compare(after, index.glance())
    assert (last.meshes, last.runs, last.listed) == ({mesh}, {"run-1"}, True)


def test_a_run_that_began_and_ended_between_two_looks_is_told(index: Index) -> None:
    mesh = index.claim(SPEC)[0].mesh
    before = index.glance()
    index.put_run(replace(a_run(mesh), state="succeeded"))
    changes = compare(before, index.glance())
    assert (changes.runs, changes.listed) == ({"run-1"}, True)


def test_events_of_one_host_do_not_hide_those_of_another(index: Index) -> None:
    mesh = index.claim(SPEC)[0].mesh
    index.add_events(mesh, 0, tuple(HostEvent(seq, 0.0, "rank_started") for seq in range(1, 9)))
    before = index.glance()
    index.add_events(mesh, 1, (HostEvent(1, 0.0, "rank_started"),))
    assert compare(before, index.glance()).events == {mesh}


def test_an_own_change_is_another_version_too(index: Index) -> None:
    before = index.version()
    index.claim(SPEC)
    assert index.version() != before
