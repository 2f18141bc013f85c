"""Regions, with numpy's arrays as the model of what a slice of a slice holds."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.extent import Extent
from milkweed.runtime.mesh import parse_selection
from milkweed.runtime.region import Region

np = pytest.importorskip("numpy")

WHOLE = Region.of(Extent(hosts=2, gpus=4))


def array(region: Region) -> Any:
    return np.array(region.ranks).reshape(region.extent.shape)


@st.composite
def extents(draw: st.DrawFn) -> Extent:
    sizes = draw(st.lists(st.integers(1, 5), max_size=4))
    return Extent(**{f"d{at}": size for at, size in enumerate(sizes)})


def bounds(size: int) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-size, size - 1)
    return st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, -1, -2])).filter(
        lambda chosen: len(range(size)[chosen]) > 0
    )


def indices(size: int) -> st.SearchStrategy[Any]:
    one = st.integers(-size, size - 1)
    return one | bounds(size) | st.lists(one, min_size=1, unique_by=lambda at: at % size)


@st.composite
def sliced(draw: st.DrawFn, region: Region) -> tuple[Region, Any]:
    """A region after a slice of some of its dimensions, and the array after the same, one at a time."""
    chosen = {
        label: draw(indices(size)) for label, size in region.sizes.items() if draw(st.booleans(), label=label)
    }
    model = array(region)
    for axis in reversed(range(len(region.extent.labels))):  # the last first: the others keep their place
        label = region.extent.labels[axis]
        if label in chosen:
            model = model[(slice(None),) * axis + (chosen[label],)]
    return region.slice(**chosen), model


@given(st.data())
def test_slices_of_slices_hold_what_numpy_would(data: st.DataObject) -> None:
    extent = data.draw(extents())
    region = Region.of(extent)
    assert np.array_equal(array(region), np.arange(extent.size).reshape(extent.shape))
    for _ in range(data.draw(st.integers(1, 3))):
        region, model = data.draw(sliced(region))
        assert array(region).shape == model.shape
        assert np.array_equal(array(region), model)


@given(st.data())
def test_a_slice_can_be_flattened_reshaped_and_split_as_numpy_would(data: st.DataObject) -> None:
    region, model = data.draw(sliced(Region.of(data.draw(extents()))))
    size = len(region)
    assert list(region.flatten("all").ranks) == list(model.reshape(-1))
    inner = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    reshaped = region.reshape(a=-1, b=inner)
    assert np.array_equal(array(reshaped), model.reshape(-1, inner))
    assert region.flatten("all").split(all=("a", "b"), b=inner) == reshaped
    again, part = data.draw(sliced(reshaped))
    assert np.array_equal(array(again), part)
    assert set(again.ranks) <= set(region.ranks)


@given(st.data())
def test_every_rank_is_found_where_it_is(data: st.DataObject) -> None:
    region, model = data.draw(sliced(Region.of(data.draw(extents()))))
    for point, rank in zip(region.points(), region.ranks, strict=True):
        assert (point.rank, region.coordinates(rank), region.point(rank)) == (rank, point, point)
        assert region.rank(**point) == rank
        assert model[tuple(point.values())] == rank
        assert rank in region


@given(st.data())
def test_equal_regions_are_equal_however_they_came_about_and_survive_pickling(data: st.DataObject) -> None:
    region, _ = data.draw(sliced(Region.of(data.draw(extents()))))
    same = Region(region.extent, list(region.ranks))
    assert same == region
    assert hash(same) == hash(region)
    assert pickle.loads(pickle.dumps(region)) == region


@given(st.data())
def test_a_written_selection_of_dimensions_is_the_slice_of_it(data: st.DataObject) -> None:
    extent = data.draw(extents())
    chosen = {
        label: sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
        for label, size in extent.sizes.items()
    }
    text = ",".join(f"{label}={','.join(map(str, members))}" for label, members in chosen.items())
    assert parse_selection(text, extent) == tuple(Region.of(extent).slice(**chosen).ranks)


def test_an_index_drops_its_dimension_and_the_others_keep_it() -> None:
    assert WHOLE.slice(gpus=0) == Region(Extent(hosts=2), [0, 4])
    assert WHOLE.slice(gpus=[0, 3]) == Region(Extent(hosts=2, gpus=2), [0, 3, 4, 7])
    assert WHOLE.slice(gpus=range(0, 4, 2), hosts=-1) == Region(Extent(gpus=2), [4, 6])
    assert WHOLE.slice(hosts=1, gpus=3) == Region(Extent(), [7])
    assert WHOLE.slice() == WHOLE


def test_numpys_integers_and_arrays_are_indices() -> None:
    assert WHOLE.slice(gpus=np.int64(1)) == WHOLE.slice(gpus=1)
    assert WHOLE.slice(gpus=np.array(1)) == WHOLE.slice(gpus=1)
    assert WHOLE.slice(gpus=np.array([1, 2])) == WHOLE.slice(gpus=[1, 2])


def test_a_list_keeps_its_order() -> None:
    assert WHOLE.slice(hosts=0, gpus=[3, 0, 1]).ranks == (3, 0, 1)


def test_sizes_are_told_for_one_dimension_for_several_and_for_all() -> None:
    assert (WHOLE.size("gpus"), WHOLE.size(["hosts", "gpus"]), WHOLE.size(), len(WHOLE)) == (4, 8, 8, 8)
    assert WHOLE.sizes == {"hosts": 2, "gpus": 4}


def test_a_rename_keeps_the_ranks() -> None:
    assert WHOLE.slice(hosts=1).rename(gpus="tp") == Region(Extent(tp=4), range(4, 8))


def test_even_ranks_cost_nothing_to_keep_or_send() -> None:
    region = Region.of(Extent(hosts=1000, gpus=8)).slice(gpus=3)
    assert region.ranks == range(3, 8000, 8)
    assert len(pickle.dumps(region)) < 250


def test_a_region_is_written_with_its_sizes_and_ranks() -> None:
    assert repr(WHOLE.slice(gpus=[0, 1, 3])) == "Region(hosts=2, gpus=3; ranks 0-1,3-5,7)"
    assert repr(WHOLE.slice(hosts=1, gpus=0)) == "Region(rank 4)"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: WHOLE.slice(tp=0), "no dimension 'tp'; dimensions are hosts, gpus"),
        (lambda: WHOLE.slice(gpus=4), "rank_not_found: no gpu 4; gpus are 0-3"),
        (lambda: WHOLE.slice(gpus=-5), "rank_not_found: no gpu -5"),
        (lambda: WHOLE.slice(hosts=2), "host_not_found: no host 2; hosts are 0-1"),
        (lambda: WHOLE.slice(gpus=[0, 4]), "rank_not_found: no gpu 4"),
        (lambda: WHOLE.slice(gpus=range(5)), "rank_not_found: no gpu 4"),
        (lambda: WHOLE.slice(gpus=slice(0, 5)), "gpus=slice(0, 5, None) reaches outside gpus, which has 4"),
        (lambda: WHOLE.slice(gpus=slice(-5, None)), "reaches outside gpus"),
        (lambda: WHOLE.slice(gpus=slice(4, None, -1)), "reaches outside gpus"),
        (lambda: WHOLE.slice(gpus=slice(2, 2)), "gpus=slice(2, 2, None) chooses nothing"),
        (lambda: WHOLE.slice(gpus=[]), "gpus=[] chooses nothing"),
        (lambda: WHOLE.slice(gpus=range(0)), "gpus=range(0, 0) chooses nothing"),
        (lambda: WHOLE.slice(gpus=slice(0, 2, 0)), "has a step of 0"),
        (lambda: WHOLE.slice(gpus=[1, 1]), "gpus=[1, 1] names an index twice"),
        (lambda: WHOLE.slice(gpus=[1, -3]), "names an index twice"),
        (lambda: WHOLE.slice(gpus="0"), "gpus='0' is no index"),  # type: ignore[arg-type]
        (lambda: WHOLE.slice(gpus=None), "gpus=None is no index"),  # type: ignore[arg-type]
        (lambda: WHOLE.slice(gpus=1.0), "gpus=1.0 is no index"),  # type: ignore[arg-type]
        (lambda: WHOLE.slice(gpus={0, 1}), "is no index"),
        (lambda: WHOLE.slice(gpus=True), "gpus=True is no whole number"),
        (lambda: WHOLE.slice(gpus=[True, False, False, True]), "gpus=True is no whole number"),
        (lambda: WHOLE.slice(gpus=["0"]), "gpus='0' is no whole number"),  # type: ignore[list-item]
        (lambda: WHOLE.slice(gpus=slice("a", None)), "gpus='a' is no whole number"),
        (lambda: WHOLE.slice(gpus=10**5000), "gpus is beyond"),
        (lambda: WHOLE.slice(gpus=0).coordinates(1), "rank_not_found: no rank 1 here; ranks are 0,4"),
        (lambda: WHOLE.slice(gpus=[0, 3]).point(1), "rank_not_found: no rank 1 here; ranks are 0,3-4,7"),
        (lambda: WHOLE.slice(gpus=0).rank(gpus=0), "no dimension 'gpus'; dimensions are hosts"),
        (lambda: WHOLE.size("tp"), "no dimension 'tp'"),
        (lambda: Region(Extent(a=2), [0, 1, 2]), "3 ranks do not fill Extent(a=2)"),
        (lambda: Region(Extent(a=3), [0, 1, 0]), "rank 0 is there twice"),
        (lambda: Region(Extent(a=2), [1, 1]), "rank 1 is there twice"),
    ],
)
def test_a_wrong_slice_says_what_there_is(call: Callable[[], object], says: str) -> None:
    with pytest.raises(MilkweedError) as caught:
        call()
    assert says in str(caught.value)
