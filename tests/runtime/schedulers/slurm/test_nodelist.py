from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.schedulers.slurm.nodelist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("login", ("login",)),
        ("n[0-2]", ("n0", "n1", "n2")),
        ("n[0,2-3],gpu-[08-10]", ("n0", "n2", "n3", "gpu-08", "gpu-09", "gpu-10")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("rack1-[9-11].cluster", ("rack1-9.cluster", "rack1-10.cluster", "rack1-11.cluster")),
        ("n[001]", ("n001",)),
    ],
)
def test_a_list_is_expanded(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["n[0-2", "n0]", "n[2-1]", "n[a-b]", "n[]", "n0,,n1", "a b", "n[0-99999999]", "n[[0]]"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"node|number|range|bracket"):
        expand(text)


PREFIX = st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z]", fullmatch=True)


@given(
    st.lists(
        st.tuples(PREFIX, st.integers(0, 5000), st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=5
    )
)
def test_ranges_stand_for_their_numbers(groups: list[tuple[str, int, int, int]]) -> None:
    text, names = [], []
    for prefix, first, more, width in groups:
        numbers = [f"{number:0{width}d}" for number in range(first, first + more + 1)]
        text.append(f"{prefix}[{numbers[0]}-{numbers[-1]}]")
        names += [f"{prefix}{number}" for number in numbers]
    assert expand(",".join(text)) == tuple(names)


@given(st.text(alphabet="n[]-,0123456789 (", max_size=30))
def test_no_text_is_more_than_refused(text: str) -> None:
    with suppress(ValueError):
        expand(text)
