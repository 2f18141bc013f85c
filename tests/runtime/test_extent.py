from __future__ import annotations

import doctest
import importlib
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.extent import Extent, Point

EXTENT = Extent(hosts=2, gpus=4)

shapes = st.lists(st.integers(1, 4), max_size=4).map(
    lambda sizes: Extent(**{f"d{at}": size for at, size in enumerate(sizes)})
)


@pytest.mark.parametrize("module", ["extent", "region", "mesh"])
def test_the_examples_of_the_documentation_hold(module: str) -> None:
    home = importlib.import_module(f"milkweed.runtime.{module}")
    result = doctest.testmod(home, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted > 0


def test_an_extent_has_names_and_sizes_in_order() -> None:
    extent = Extent(zone=2, hosts=3, gpus=4)
    assert extent.labels == ("zone", "hosts", "gpus")
    assert extent.sizes == {"zone": 2, "hosts": 3, "gpus": 4}
    assert (extent.size, extent.hosts, extent.gpus, extent["zone"]) == (24, 3, 4, 2)
    assert extent.strides == (12, 4, 1)
    assert "gpus" in extent
    assert "tp" not in extent


def test_the_order_of_dimensions_tells_extents_apart() -> None:
    assert Extent(a=2, b=2) != Extent(b=2, a=2)
    assert {Extent(a=2, b=3), Extent(a=2, b=3)} == {Extent(a=2, b=3)}


def test_an_extent_without_dimensions_has_one_rank() -> None:
    assert (Extent().size, Extent().coordinates(0), Extent().rank()) == (1, {}, 0)


def test_any_name_that_python_can_pass_is_a_dimension() -> None:
    assert Extent(self=2, labels=3, size=4).coordinates(23) == {"self": 1, "labels": 2, "size": 3}


@given(shapes)
def test_ranks_and_coordinates_are_each_others_inverse(extent: Extent) -> None:
    places = [extent.coordinates(rank) for rank in range(extent.size)]
    assert [extent.rank(**place) for place in places] == list(range(extent.size))
    assert places == sorted(places, key=lambda place: list(place.values()))


def test_negative_coordinates_count_from_the_end() -> None:
    assert EXTENT.rank(hosts=-1, gpus=-2) == 6


@given(st.permutations(["hosts", "gpus", "zone"]))
def test_each_host_numbers_its_ranks_from_zero_wherever_its_dimension_is(order: list[str]) -> None:
    sizes = {"hosts": 2, "gpus": 3, "zone": 2}
    extent = Extent(**{label: sizes[label] for label in order})
    for host in range(2):
        ranks = [rank for rank in range(12) if extent.host_of(rank) == host]
        assert ranks == [rank for rank in range(12) if extent.coordinates(rank)["hosts"] == host]
        assert [extent.local_rank(rank) for rank in ranks] == list(range(6))


def test_an_extent_without_hosts_is_on_one() -> None:
    extent = Extent(gpus=4)
    assert (extent.hosts, extent.host_of(3), extent.local_rank(3)) == (1, 0, 3)


def test_a_dimension_is_split_with_one_size_left_out() -> None:
    assert EXTENT.split(gpus=("dp", "tp"), tp=2) == Extent(hosts=2, dp=2, tp=2)
    assert EXTENT.split(hosts=("a", "b"), gpus=("gpus", "tp"), b=1, tp=4) == Extent(a=2, b=1, gpus=1, tp=4)


def test_dimensions_are_renamed_in_place_and_can_swap_names() -> None:
    assert EXTENT.rename(gpus="tp") == Extent(hosts=2, tp=4)
    assert EXTENT.rename(gpus="hosts", hosts="gpus") == Extent(gpus=2, hosts=4)


def test_a_reshape_works_out_one_open_size() -> None:
    assert EXTENT.reshape(dp=-1, tp=2) == Extent(dp=4, tp=2)
    assert EXTENT.flatten("rank") == Extent(rank=8)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Extent(gpus=0), "gpus=0 is no size"),
        (lambda: Extent(gpus=-1), "gpus=-1 is no size"),
        (lambda: Extent(gpus=True), "gpus=True is no whole number"),
        (lambda: Extent(gpus=2.0), "gpus=2.0 is no whole number"),  # type: ignore[arg-type]
        (lambda: Extent(gpus=10**5000), "gpus is beyond"),
        (lambda: Extent(**{"a b": 1}), "'a b' names no dimension"),
        (lambda: Extent(größe=1), "names no dimension"),
        (lambda: EXTENT["tp"], "no dimension 'tp'; dimensions are hosts, gpus"),
        (lambda: Extent().gpus, "no dimension 'gpus'; there are no dimensions"),
        (lambda: EXTENT.coordinates(8), "rank_not_found: no rank 8; ranks are 0-7"),
        (lambda: EXTENT.coordinates(-1), "rank_not_found: no rank -1"),
        (lambda: EXTENT.rank(hosts=0), "no coordinate for gpus"),
        (lambda: EXTENT.rank(hosts=0, gpus=0, tp=0), "no dimension 'tp'"),
        (lambda: EXTENT.rank(hosts=2, gpus=0), "host_not_found: no host 2; hosts are 0-1"),
        (lambda: EXTENT.rank(hosts=0, gpus=-5), "rank_not_found: no gpu -5; gpus are 0-3"),
        (lambda: EXTENT.rename(tp="dp"), "no dimension 'tp'"),
        (lambda: EXTENT.rename(gpus="hosts"), "two dimensions would be named hosts"),
        (lambda: EXTENT.rename(gpus=1), "1 names no dimension"),  # type: ignore[arg-type]
        (lambda: EXTENT.reshape(a=3), "8 ranks cannot be a=3"),
        (EXTENT.reshape, "8 ranks cannot be one"),
        (lambda: EXTENT.reshape(a=-1, b=3), "8 ranks cannot be a=?, b=3"),
        (lambda: EXTENT.reshape(a=-1, b=-1), "the sizes of a, b are open"),
        (lambda: EXTENT.reshape(a=-2, b=-4), "a=-2 is no size"),
        (lambda: EXTENT.split(gpus=("dp", "tp")), "the sizes of dp, tp are open"),
        (lambda: EXTENT.split(gpus=("dp", "tp"), tp=3), "gpus of size 4 cannot be dp=?, tp=3"),
        (lambda: EXTENT.split(gpus=("dp", "tp"), tp=3, dp=2), "gpus of size 4 cannot be dp=2, tp=3"),
        (lambda: EXTENT.split(gpus=("dp", "dp"), dp=2), "two dimensions would be named dp"),
        (lambda: EXTENT.split(gpus=("hosts", "tp"), tp=2), "two dimensions would be named hosts"),
        (lambda: EXTENT.split(gpus="dp"), "gpus is to be split into 'dp'"),
        (lambda: EXTENT.split(gpus=2), "gpus is to be split into 2"),
        (lambda: EXTENT.split(gpus=()), "gpus is to be split into ()"),
        (lambda: EXTENT.split(gpus=("dp", 3), dp=4), "3 names no dimension"),  # type: ignore[arg-type]
        (lambda: EXTENT.split(tp=2), "'tp' is neither a dimension nor a part of one"),
        (lambda: EXTENT.flatten(3), "3 names no dimension"),  # type: ignore[arg-type]
        (lambda: EXTENT.flatten("a-b"), "'a-b' names no dimension"),
    ],
)
def test_what_an_extent_cannot_do_is_said(call: Callable[[], object], says: str) -> None:
    with pytest.raises(MilkweedError) as caught:
        call()
    assert says in str(caught.value)


@given(shapes)
def test_an_extent_survives_pickling(extent: Extent) -> None:
    assert pickle.loads(pickle.dumps(extent)) == extent


def test_a_pickled_extent_is_small() -> None:
    assert len(pickle.dumps(EXTENT)) < 100


def test_a_point_is_a_mapping_of_its_coordinates_with_the_rank() -> None:
    point = Point(13, EXTENT, 5)
    assert point == {"hosts": 1, "gpus": 1}
    assert (dict(point), point.rank, point["gpus"], point.size("gpus")) == ({"hosts": 1, "gpus": 1}, 13, 1, 4)
    assert point.get("tp") is None
    assert repr(point) == "Point(rank=13, hosts=1, gpus=1)"
    assert point != Point(5, EXTENT, 5)
    assert pickle.loads(pickle.dumps(point)) == point
    assert len({point, Point(13, EXTENT, 5)}) == 1
