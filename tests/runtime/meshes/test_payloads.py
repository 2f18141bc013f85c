"""What crosses: arrays and tensors without copies, classes of nowhere, large and odd things."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tracemalloc
from typing import Any

import anyio
import numpy as np
import pytest

from milkweed.runtime import ActorMesh, MeshError, ProcMesh
from milkweed.runtime.errors import ActorError
from milkweed.runtime.pickling import dumps
from tests.runtime.hosts import ROOT
from tests.runtime.meshes.actors import Worker
from tests.runtime.meshes.conftest import DEADLINE_S

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


@pytest.fixture
async def worker(procs: ProcMesh) -> ActorMesh:
    return await procs.slice(gpus=0).spawn("worker", Worker)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10_000, dtype=np.float32),
        np.arange(10_000).reshape(100, 100).T,
        np.arange(20_000)[::2],
        np.array(3.5),
        np.zeros((0, 4)),
        np.array(["a", None], dtype=object),
        np.zeros(5000, dtype=[("a", "i4"), ("b", "f8")]),
    ],
    ids=["large", "transposed", "strided", "scalar", "empty", "objects", "records"],
)
async def test_an_array_arrives_equal_and_writable(worker: ActorMesh, array: Any) -> None:
    for echo in (worker.echo, worker.echo_in_turn):
        with anyio.fail_after(DEADLINE_S):
            back = await echo.call_one(array)
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert (back == array).all()
        assert back.flags.writeable


async def test_a_large_array_is_sent_and_received_without_copies(worker: ActorMesh) -> None:
    array = np.ones(32 * MIB, dtype=np.uint8)
    _, buffers = dumps(array)
    assert [np.shares_memory(array, np.frombuffer(one, np.uint8)) for one in buffers] == [True]
    with anyio.fail_after(DEADLINE_S):
        await worker.echo.call_one(0)
        tracemalloc.start()
        try:
            back = await worker.echo.call_one(array)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert back.nbytes == array.nbytes
    # What was received into is all that there was: neither the way out nor the way in made another one.
    assert peak < array.nbytes + 4 * MIB


async def test_what_is_held_stays_as_it_was_whatever_is_received_after_it(worker: ActorMesh) -> None:
    parts = []
    for number in range(6):
        with anyio.fail_after(DEADLINE_S):
            back = await worker.echo.call_one([np.full(8 * MIB, number, np.uint8), number])
        parts.append(back[0][-1000::2])
        del back
    assert [set(part.tolist()) for part in parts] == [{number} for number in range(6)]


async def test_results_that_nobody_holds_are_received_into_the_same_memory(worker: ActorMesh) -> None:
    array, addresses = np.zeros(8 * MIB, np.uint8), set()
    for _ in range(5):
        with anyio.fail_after(DEADLINE_S):
            back = await worker.echo.call_one(array)
        addresses.add(back.ctypes.data)
        del back
    assert len(addresses) == 1


async def test_large_bytes_arrive_as_the_bytes_that_they_were(worker: ActorMesh) -> None:
    data = bytes(range(256)) * (6 * 4096) + b"odd"
    with anyio.fail_after(DEADLINE_S):
        back = await worker.echo.call_one(data)
    assert type(back) is bytes
    assert back == data
    assert hash(back) == hash(data)


async def test_more_arrays_than_a_frame_has_room_for_beside_its_pickle_cross(worker: ActorMesh) -> None:
    arrays = [np.full(512, number, dtype=np.int64) for number in range(40_000)]
    _, buffers = dumps(arrays)
    assert len(buffers) < 40_000
    with anyio.fail_after(2 * DEADLINE_S):
        back = await worker.echo.call_one(arrays)
    assert [int(one[0]) for one in back[::4000]] == list(range(0, 40_000, 4000))


@pytest.mark.parametrize("size", [0, 1, 4096, 256 * 1024, 33 * MIB])
async def test_bytes_of_any_size_come_back(worker: ActorMesh, size: int) -> None:
    with anyio.fail_after(DEADLINE_S):
        assert len(await worker.blob.call_one(size)) == size


async def test_functions_and_classes_from_within_a_function_cross(worker: ActorMesh) -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    offset = 10
    with anyio.fail_after(DEADLINE_S):
        assert await worker.apply.call_one(lambda x: x + offset, 5) == 15
        back = await worker.echo.call_one(Local(7))
        assert isinstance(back, Local)
        assert back.value == 7


async def test_an_actor_class_from_within_a_function_is_spawned(procs: ProcMesh) -> None:
    from milkweed.runtime import Actor, endpoint

    class Here(Actor):
        @endpoint
        def where(self) -> str:
            return type(self).__qualname__

    here = await procs.spawn("here", Here)
    with anyio.fail_after(DEADLINE_S):
        assert all(one.endswith("Here") for one in (await here.where.call()).values())


async def test_a_class_that_cannot_be_imported_there_is_told_with_the_reason(
    procs: ProcMesh, worker: ActorMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    import types

    module = types.ModuleType("only_here")
    exec("class Thing: pass", module.__dict__)
    exec("from milkweed.runtime import Actor\nclass Lost(Actor): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(ActorError) as caught:
            await worker.echo.call_one(module.Thing())
        assert "unreadable_arguments" in str(caught.value)
        assert "only_here" in str(caught.value)
        with pytest.raises(MeshError, match="only_here"):
            await procs.spawn("lost", module.Lost)
        assert await worker.echo.call_one(1) == 1


MAIN = """
    import dataclasses, enum
    from milkweed.runtime import Actor, endpoint, this_host

    class Colour(enum.Enum):
        RED = 1

    @dataclasses.dataclass
    class Point:
        x: int

    class Problem(Exception):
        pass

    def helper(point):
        return Point(point.x + 1)

    class Adder(Actor):
        def __init__(self, base: Point) -> None:
            self.base = base
        @endpoint
        async def move(self, colour: Colour) -> Point:
            assert colour is Colour.RED
            return helper(self.base)
        @endpoint
        def fail(self) -> None:
            raise Problem("of main")

    if __name__ == "__main__":
        procs = this_host().spawn_procs(per_host={"gpus": 1}).get()
        adder = procs.spawn("adder", Adder, Point(4)).get()
        moved = adder.move.call_one(Colour.RED).get()
        assert type(moved) is Point and moved == Point(5), moved
        try:
            adder.fail.call_one().get()
        except Exception as error:
            assert type(error.__cause__) is Problem, error.__cause__
        print("well")
"""


def test_classes_of_main_cross_in_both_directions(tmp_path: Any) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(MAIN))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", "")


class TestTensors:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        self.t = pytest.importorskip("torch")
        return self.t

    async def test_tensors_of_every_kind_arrive_equal_and_writable(self, worker: ActorMesh) -> None:
        t = self.t
        tensors = [
            t.arange(5000, dtype=t.bfloat16),
            t.randn(100, 100).T,
            t.randn(5000)[::2],
            t.tensor(2.5),
            t.zeros(0, 3),
            t.ones(3000, requires_grad=True),
            t.ones(3000, requires_grad=True) * 2,
            t.randn(3000, dtype=t.complex64),
            t.randn(3000, dtype=t.complex64).conj(),
            t.ones(1).expand(5000),
            t.rand(3000) > 0.5,
        ]
        with anyio.fail_after(2 * DEADLINE_S):
            back = await worker.echo.call_one(tensors)
        for sent, came in zip(tensors, back, strict=True):
            assert (came.dtype, came.shape, came.requires_grad) == (
                sent.dtype,
                sent.shape,
                sent.requires_grad,
            )
            assert t.equal(came.detach(), sent.detach())
        back[0][0] = 7
        back[3].fill_(1)

    def test_a_view_sends_what_it_shows_and_nothing_else_of_its_memory(self) -> None:
        whole = self.t.zeros(1000, 1000)
        for view in (whole[:, 3], whole[5], whole[10:20, 10:20].T):
            body, buffers = dumps(view)
            assert len(body) + sum(map(len, buffers)) < view.numel() * 4 + 1000

    def test_an_expanded_tensor_is_sent_as_small_as_it_is(self) -> None:
        body, buffers = dumps(self.t.ones(1).expand(1_000_000))
        assert len(body) + sum(map(len, buffers)) < 10_000

    def test_the_memory_of_a_contiguous_tensor_is_what_is_sent(self) -> None:
        for tensor in (self.t.ones(5000), self.t.ones(5000, dtype=self.t.bfloat16), self.t.ones(9, 5000)[3]):
            _, (buffer,) = dumps(tensor)
            assert np.frombuffer(buffer, np.uint8).__array_interface__["data"][0] == tensor.data_ptr()
