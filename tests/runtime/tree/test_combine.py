from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.tree import Operation, check_operation, combine, finished, packed_operation
from milkweed.runtime.tree.combine import read_operation

NAMES: list[Operation] = ["sum", "min", "max", "mean"]


@given(st.lists(st.integers(), min_size=1), st.data())
def test_values_combined_in_groups_are_what_they_are_combined_at_once(
    values: list[int], data: st.DataObject
) -> None:
    operation = data.draw(st.sampled_from(NAMES))
    cut = data.draw(st.integers(1, len(values)))
    groups = [part for part in (values[:cut], values[cut:]) if part]
    total = combine(operation, [combine(operation, part) for part in groups])
    expected = {"sum": sum(values), "min": min(values), "max": max(values), "mean": sum(values) / len(values)}
    assert finished(operation, total, len(values)) == expected[str(operation)]


def test_arrays_are_combined_element_by_element() -> None:
    one, other = np.array([1.0, 9.0]), np.array([2.0, 0.0])
    assert combine("min", [one, other]).tolist() == [1.0, 0.0]
    assert combine("max", [one, 5.0]).tolist() == [5.0, 9.0]
    assert finished("mean", combine("mean", [one, other]), 2).tolist() == [1.5, 4.5]


def test_a_function_gets_the_values_in_their_order_and_can_be_sent() -> None:
    operation: Operation = read_operation(packed_operation(lambda one, other: f"{one}{other}"))
    assert combine(operation, ["a", "b", "c"]) == "abc"


@pytest.mark.parametrize("operation", ["avg", None, 3])
def test_what_is_no_reduction_is_refused_with_those_there_are(operation: object) -> None:
    with pytest.raises(InvalidArgument, match="sum, min, max, mean"):
        check_operation(operation)
