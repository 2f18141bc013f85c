from __future__ import annotations

import doctest
import pickle
import traceback
from collections.abc import Callable

import pytest

from milkweed.runtime import meshes
from milkweed.runtime.errors import ActorError, MeshError, MilkweedError, Unavailable
from milkweed.runtime.extent import Extent
from milkweed.runtime.meshes import Failed, ValueMesh, value_mesh
from milkweed.runtime.meshes.unseen import Unseen
from milkweed.runtime.region import Region

WHOLE = Region.of(Extent(hosts=2, gpus=4))


def good() -> ValueMesh[int]:
    return ValueMesh(WHOLE, {rank: rank * 10 for rank in range(8)})


def mixed() -> ValueMesh[int]:
    errors: dict[int, Exception] = {rank: ValueError("x") for rank in (0, 1, 5)}
    errors[6] = KeyError("y")
    return ValueMesh(WHOLE, {rank: rank * 10 for rank in (2, 3, 4, 7)}, errors)


def test_the_face_is_pinned() -> None:
    assert meshes.__all__ == [
        *("ActorMesh", "Endpoint", "Failed", "HostMesh", "LocalProc", "ProcMesh", "Reduced", "Shaped"),
        *("Stream", "ValueMesh", "attach", "broadcast_buffer", "this_host", "this_proc"),
    ]


def test_the_examples_of_the_documentation_hold() -> None:
    result = doctest.testmod(value_mesh, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted > 0


def test_values_and_items_come_in_the_order_of_the_dimensions() -> None:
    mesh = ValueMesh(WHOLE, {rank: rank * 10 for rank in reversed(range(8))})
    assert mesh.values() == [rank * 10 for rank in range(8)]
    assert [(point.rank, point["hosts"], value) for point, value in mesh.items()] == [
        (rank, rank // 4, rank * 10) for rank in range(8)
    ]
    assert list(mesh) == list(mesh.items())


def test_one_failing_rank_hides_no_other() -> None:
    mesh = mixed()
    assert mesh.ok() == {2: 20, 3: 30, 4: 40, 7: 70}
    assert {rank: type(error) for rank, error in mesh.errors().items()} == {
        0: ValueError,
        1: ValueError,
        5: ValueError,
        6: KeyError,
    }
    outcomes = [(point.rank, outcome) for point, outcome in mesh.outcomes()]
    assert outcomes[2:5] == [(2, 20), (3, 30), (4, 40)]
    assert [rank for rank, outcome in outcomes if isinstance(outcome, Failed)] == [0, 1, 5, 6]


@pytest.mark.parametrize("read", [ValueMesh.values, ValueMesh.items, iter, ValueMesh.raise_for_errors])
def test_what_reads_all_values_raises_at_once_if_one_is_an_error(
    read: Callable[[ValueMesh[int]], object],
) -> None:
    mesh = mixed()
    with pytest.raises(MeshError) as caught:
        read(mesh)
    assert str(caught.value).startswith(
        "ranks_failed: 4 of 8 ranks failed: ValueError: x (ranks 0-1,5); KeyError: 'y' (rank 6). ok() gives"
    )
    assert caught.value.errors == mesh.errors()
    assert caught.value.__cause__ is mesh.errors()[0]


def test_a_slice_without_the_failed_ranks_raises_nothing() -> None:
    assert mixed().slice(hosts=0, gpus=slice(2, None)).values() == [20, 30]
    good().raise_for_errors()


def test_an_exception_that_was_returned_is_a_value() -> None:
    returned = ValueError("returned")
    region = Region.of(Extent(gpus=2))
    mesh: ValueMesh[Exception] = ValueMesh(region, {0: returned, 1: returned})
    assert mesh.values() == [returned, returned]
    mesh = ValueMesh.of(region, {0: returned, 1: Failed(KeyError("raised"))})
    assert mesh.ok() == {0: returned}
    assert repr(mesh.errors()) == "{1: KeyError('raised')}"


def test_nothing_returned_is_a_value() -> None:
    mesh = ValueMesh(Region.of(Extent(gpus=2)), {0: None, 1: None})
    assert mesh.values() == [None, None]
    assert mesh[1] is None


def test_one_place_is_read_by_coordinates_or_as_of_a_list() -> None:
    mesh = good()
    assert (mesh.item(hosts=1, gpus=2), mesh.item(gpus=-1, hosts=0), mesh[6], mesh[-1]) == (60, 30, 60, 70)
    part = mesh.slice(hosts=1)
    assert (part[0], part.item(gpus=0), part.slice(gpus=3).item()) == (40, 40, 70)


def test_one_place_raises_only_its_own_error_and_always_the_same_way() -> None:
    mesh = mixed()
    assert mesh.item(hosts=0, gpus=2) == 20
    lengths = []
    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            mesh.item(hosts=1, gpus=2)
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(lengths)) == 1
    with pytest.raises(ValueError, match="x"):
        mesh[0]


def test_values_stay_with_their_ranks_through_slices_and_shapes() -> None:
    mesh = good().slice(gpus=[3, 0]).split(hosts=("a", "b"), a=2).rename(gpus="tp")
    assert mesh.extent == Extent(a=2, b=1, tp=2)
    assert mesh.values() == [30, 0, 70, 40]
    assert mesh.item(a=1, b=0, tp=0) == 70
    assert good().reshape(dp=4, tp=-1).slice(tp=1).values() == [10, 30, 50, 70]
    assert good().flatten("rank").slice(rank=range(0, 8, 3)).values() == [0, 30, 60]
    assert good().slice(gpus=1).slice(hosts=1).ranks == range(5, 6)
    assert (len(good()), good().size("gpus"), good().sizes) == (8, 4, {"hosts": 2, "gpus": 4})


def test_errors_are_told_by_the_ranks_of_the_mesh_that_was_spawned() -> None:
    part = mixed().slice(hosts=1)
    assert list(part.errors()) == [5, 6]
    with pytest.raises(MeshError, match=r"2 of 4 ranks failed: ValueError: x \(rank 5\); KeyError"):
        part.values()


def test_a_map_changes_values_and_keeps_errors() -> None:
    mapped = mixed().map(str)
    assert mapped.ok() == {2: "20", 3: "30", 4: "40", 7: "70"}
    assert mapped.errors() == {rank: mapped.errors()[rank] for rank in (0, 1, 5, 6)}
    with pytest.raises(ZeroDivisionError):
        good().map(lambda value: 1 // value)


@pytest.mark.parametrize(
    ("mesh", "text"),
    [
        (good(), "ValueMesh(hosts=2, gpus=4; ranks 0-7)"),
        (mixed(), "ValueMesh(hosts=2, gpus=4; ranks 2-4,7; failed 0-1,5-6)"),
        (mixed().slice(hosts=0, gpus=0), "ValueMesh(failed 0)"),
        (good().slice(hosts=0, gpus=0), "ValueMesh(rank 0)"),
    ],
)
def test_it_is_written_with_its_sizes_and_who_failed(mesh: ValueMesh[int], text: str) -> None:
    assert repr(mesh) == text


def test_texts_stay_short_however_many_ranks_fail_and_whatever_they_say() -> None:
    size = 4000
    errors: dict[int, Exception] = {
        rank: RuntimeError(f"{rank % 7}" + "x" * 10_000 + "\nmore") for rank in range(0, size, 2)
    }
    region = Region.of(Extent(gpus=size))
    mesh = ValueMesh(region, dict.fromkeys(range(1, size, 2), 0), errors)
    assert len(repr(mesh)) < 200
    with pytest.raises(MeshError) as caught:
        mesh.values()
    text = str(caught.value)
    assert text.startswith("ranks_failed: 2000 of 4000 ranks failed: RuntimeError: 0xxx")
    assert "; 2 more causes. " in text
    assert "\n" not in text
    assert len(text) < 1600


def test_a_cause_is_told_in_the_words_of_its_kind() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    errors = {0: Unavailable("host_lost", "host 1 is lost", "Call mesh_status."), 1: Mute(), 2: OSError()}
    mesh: ValueMesh[int] = ValueMesh(Region.of(Extent(gpus=3)), {}, errors)
    with pytest.raises(MeshError) as caught:
        mesh.values()
    assert "host_lost: host 1 is lost (rank 0); Mute (rank 1); OSError (rank 2)" in str(caught.value)


def test_where_an_endpoint_raised_stands_by_its_ranks_not_behind_what_to_do() -> None:
    def raised(rank: int, line: int) -> ActorError:
        cause = f"t.pull on rank {rank} raised Conflict: gone. Ask for another."
        return ActorError("actor_error", cause, "", place=f"a.py:{line} in pull")

    errors: dict[int, Exception] = {0: raised(0, 9), 1: raised(1, 9), 2: raised(2, 12)}
    mesh: ValueMesh[int] = ValueMesh(Region.of(Extent(gpus=3)), {}, errors)
    with pytest.raises(MeshError) as caught:
        mesh.values()
    told = "Conflict: gone. Ask for another"
    assert f"{told} (ranks 0-1, at a.py:9 in pull); {told} (rank 2, at a.py:12 in pull)." in str(caught.value)


def test_a_mesh_of_values_and_its_error_survive_pickling() -> None:
    mesh = mixed()
    again = pickle.loads(pickle.dumps(mesh))
    assert (again.region, again.ok(), repr(again.errors())) == (mesh.region, mesh.ok(), repr(mesh.errors()))
    with pytest.raises(MeshError) as caught:
        mesh.values()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (str(error), list(error.errors)) == (str(caught.value), [0, 1, 5, 6])
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ValueMesh(WHOLE, {0: 1}), "ranks 1-7 have neither a value nor an error"),
        (lambda: ValueMesh(WHOLE, dict.fromkeys(range(8)), {3: OSError()}), "ranks 3 have a value and"),
        (lambda: ValueMesh.of(WHOLE, {}), "ranks 0-7 have neither"),
        (lambda: good()[8], "no place 8; there are 8, for ranks 0-7"),
        (lambda: good().item(), "no coordinate for hosts, gpus"),
        (lambda: good().item(hosts=0), "no coordinate for gpus"),
        (lambda: good().item(hosts=0, gpus=4), "no gpu 4; gpus are 0-3"),
        (lambda: good().slice(gpus=9), "no gpu 9; gpus are 0-3"),
        (lambda: good().reshape(a=3), "8 ranks cannot be a=3"),
    ],
)
def test_what_is_not_there_is_said(call: Callable[[], object], says: str) -> None:
    with pytest.raises(MilkweedError) as caught:
        call()
    assert says in str(caught.value)


def unlooked(told: list[str]) -> ValueMesh[int]:
    def words() -> str:
        told.append("told")
        return "two failed"

    return ValueMesh(WHOLE, {rank: rank for rank in range(7)}, {7: ValueError("x")}, unseen=Unseen(words))


def test_errors_that_nobody_looked_at_are_told_when_the_last_part_of_them_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[str] = []
    mesh = unlooked(told)
    part = mesh.slice(hosts=0)
    doubled = mesh.map(lambda value: 2 * value)
    del mesh, part
    assert not told
    del doubled
    assert told == ["told"]
    assert capsys.readouterr().err == "milkweed: two failed\n"


@pytest.mark.parametrize(
    "look",
    [
        ValueMesh.ok,
        ValueMesh.errors,
        lambda mesh: list(mesh.outcomes()),
        lambda mesh: _raises(mesh.values),
        lambda mesh: _raises(mesh.raise_for_errors),
        lambda mesh: _raises(lambda: mesh[7]),
        lambda mesh: mesh.slice(hosts=1).errors(),
        repr,
        pickle.dumps,
    ],
)
def test_errors_that_were_looked_at_are_not_told(look: Callable[[ValueMesh[int]], object]) -> None:
    told: list[str] = []
    mesh = unlooked(told)
    look(mesh)
    del mesh
    assert not told


def _raises(read: Callable[[], object]) -> None:
    with pytest.raises((MeshError, ValueError)):
        read()
