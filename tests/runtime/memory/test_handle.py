from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.memory.handle import span


def test_without_a_length_a_read_moves_what_follows_and_a_write_what_is_here() -> None:
    assert span(100, 200, 30, None, write=False) == 70
    assert span(100, 20, 30, None, write=True) == 20
    assert span(100, 100, 100, None, write=False) == 0


@pytest.mark.parametrize("write", [False, True])
@given(data=st.data())
def test_what_is_moved_lies_within_both_ends_or_is_refused(write: bool, data: st.DataObject) -> None:
    size, local = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    offset, length = data.draw(st.integers(-5, 25)), data.draw(st.none() | st.integers(-5, 25))
    wanted = length if length is not None else local if write else size - offset
    if offset < 0 or wanted < 0 or offset + wanted > size or wanted > local:
        with pytest.raises(InvalidArgument, match="out_of_range"):
            span(size, local, offset, length, write=write)
    else:
        assert span(size, local, offset, length, write=write) == wanted
