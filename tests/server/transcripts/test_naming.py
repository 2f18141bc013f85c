"""Names for ids and paths: given when recording, bound when replaying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.index import Index
from milkweed.server.transcripts.naming import Names, names_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def recorded(names: Names, answer: Any) -> Any:
    names.find(answer)
    return names.abstract(answer)


def test_ids_get_names_where_they_are_first_told_and_keep_them() -> None:
    names = Names({"workspace": "/home/me/gpt"})
    assert recorded(names, {"mesh": "mesh-demo-k3f", "state": "ready"}) == {"mesh": "${mesh1}", "state": "ready"}
    told = recorded(names, {"run": "run-7qd", "next": "diagnose_run(run='run-7qd') in /home/me/gpt/train.py"})
    assert told == {"run": "${run1}", "next": "diagnose_run(run='${run1}') in ${workspace}/train.py"}
    assert recorded(names, {"run": "run-8zz"}) == {"run": "${run2}"}
    assert names.abstract("run-7qd and run-8zz of mesh-demo-k3f") == "${run1} and ${run2} of ${mesh1}"


def test_words_that_only_look_like_ids_are_left_alone() -> None:
    names = Names()
    names.find({"run": "run-7qd"})
    assert names.abstract("run-time of run-7qdx and a-run-7qd") == "run-time of run-7qdx and a-run-7qd"
    assert recorded(names, {"run": "a run of mine"}) == {"run": "a run of mine"}


def test_a_path_is_named_whole_and_not_in_a_longer_name() -> None:
    names = Names({"workspace": "/w", "home": "/home/me"})
    assert names.abstract("/w/a.py /ww/b.py /home/me/x /home/me2") == "${workspace}/a.py /ww/b.py ${home}/x /home/me2"


def test_a_token_is_named_though_only_words_tell_it() -> None:
    names = Names()
    text = "confirm with confirm='plan-a1b2c3'"
    assert recorded(names, text) == "confirm with confirm='${plan1}'"
    live = Names()
    live.learn("confirm with confirm='${plan1}'", "lost: 2 files; confirm='plan-zzzzzz'")
    assert live.value("plan1") == "plan-zzzzzz"


def test_a_plan_of_the_index_is_named(tmp_path: Path) -> None:
    index = Index(tmp_path / "index.sqlite")
    plan = index.add_plan("release_mesh", "", 0.0).plan
    index.close()
    assert recorded(Names(), {"state": "not_released", "confirm": plan})["confirm"] == "${plan1}"


def test_a_replay_binds_names_by_their_place_and_else_by_their_order() -> None:
    names = Names()
    names.learn(
        {"run": "${run1}", "runs": [{"run": "${run2}"}, {"run": "${run3}"}], "gone": "${run4}"},
        {"run": "run-aaa", "runs": [{"run": "run-bbb"}, {"run": "run-ccc"}, {"run": "run-ddd"}]},
    )
    assert names.concrete(["${run1}", "${run2}", "${run3}", "${run4}", "${run5}"]) == [
        "run-aaa",
        "run-bbb",
        "run-ccc",
        "run-ddd",
        "${run5}",
    ]
    assert names.unbound({"x": "${run5} ${run1}"}) == ["run5"]


@given(JSON)
def test_what_has_no_ids_is_recorded_and_replayed_as_it_is(value: Any) -> None:
    names = Names()
    found = recorded(names, value)
    if not list(names_in(value)):
        assert Names().concrete(found) == value or list(names_in(found))


@given(st.lists(st.sampled_from(["run-aaa", "run-bbb", "mesh-x-ccc"]), max_size=6))
def test_recorded_and_bound_again_is_the_same(ids: list[str]) -> None:
    answer = [{one.partition("-")[0]: one, "words": f"({one})"} for one in ids]
    names = Names()
    abstract = recorded(names, answer)
    again = Names()
    again.learn(abstract, answer)
    assert again.concrete(abstract) == answer
