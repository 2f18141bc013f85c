from __future__ import annotations

import pickle
from collections.abc import Callable
from threading import Lock
from typing import Any

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.pickling import dumps, loads

numpy = pytest.importorskip("numpy", reason="the torch extra brings it")
torch = pytest.importorskip("torch", reason="an extra")

LARGE = 8192


def sent(value: Any) -> Any:
    """As it arrives: its buffers in memory of their own, as a socket's reader has them."""
    body, buffers = dumps(value)
    return loads(body, [memoryview(bytearray(buffer)) for buffer in buffers])


def test_a_large_array_is_sent_from_its_own_memory_and_arrives_writable() -> None:
    array = numpy.arange(LARGE)
    body, buffers = dumps({"batch": array})
    assert len(body) < 1000
    assert [buffer.nbytes for buffer in buffers] == [array.nbytes]
    array[0] = 7
    assert buffers[0][0] == 7  # not a copy
    arrived = sent(array)
    arrived[1] = 9
    assert arrived[0] == 7
    assert arrived[1] == 9
    assert array[1] == 1


@pytest.mark.parametrize(
    "around",
    [
        lambda data: data,
        lambda data: ((1, data), {}),
        lambda data: ((), {"first": None, "data": data}),
    ],
    ids=["value", "argument", "keyword"],
)
def test_large_bytes_that_are_an_argument_or_the_value_are_sent_from_their_own_memory(
    around: Callable[[bytes], Any],
) -> None:
    data = bytes(range(256)) * 4096
    body, buffers = dumps(around(data))
    assert len(body) < 1000
    assert [buffer.obj for buffer in buffers] == [data]
    assert buffers[0].obj is data
    arrived = sent(around(data))
    assert arrived == around(data)
    assert type(arrived) is type(around(data))


def test_bytes_that_may_be_written_while_they_are_sent_are_copied() -> None:
    data = bytearray(1024 * 1024)
    assert dumps(data)[1] == []
    assert sent(data) == data


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(LARGE, dtype=torch.float32).reshape(64, -1),
        lambda: torch.ones(LARGE, dtype=torch.bfloat16),
        lambda: torch.zeros(LARGE, dtype=torch.bool),
        lambda: torch.ones(LARGE, dtype=torch.complex64),
        lambda: torch.ones(LARGE, requires_grad=True),
    ],
    ids=["float32", "bfloat16", "bool", "complex64", "requires_grad"],
)
def test_a_large_tensor_is_sent_beside_its_pickle(make: Callable[[], Any]) -> None:
    tensor = make()
    body, buffers = dumps(tensor)
    assert len(body) < 1000
    assert sum(buffer.nbytes for buffer in buffers) == tensor.nbytes
    assert buffers[0].obj is not None
    arrived = sent(tensor)
    assert torch.equal(arrived, tensor)
    assert (arrived.dtype, arrived.shape, arrived.requires_grad) == (
        tensor.dtype,
        tensor.shape,
        tensor.requires_grad,
    )
    with torch.no_grad():
        arrived += 1 if tensor.dtype != torch.bool else True
    assert not torch.equal(arrived, tensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(LARGE).reshape(64, -1).t(),
        lambda: torch.arange(LARGE)[::2],
        lambda: torch.tensor(3.5),
        lambda: torch.empty(0, 4),
        lambda: torch.ones(3),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.ones(4, dtype=torch.complex64).conj(),
    ],
    ids=["transposed", "strided", "scalar", "empty", "small", "sparse", "conjugated"],
)
def test_a_tensor_of_any_other_kind_arrives_too(make: Callable[[], Any]) -> None:
    tensor = make()
    arrived = sent(tensor)
    assert arrived.shape == tensor.shape
    assert torch.equal(arrived.to_dense(), tensor.to_dense())


def test_parameters_of_a_module_go_beside_its_pickle() -> None:
    layer = torch.nn.Linear(256, 256)
    body, buffers = dumps(layer)
    assert len(buffers) == 1
    assert len(body) < 10_000
    assert torch.equal(sent(layer).weight, layer.weight)


def test_what_cannot_be_imported_elsewhere_goes_by_value_and_keeps_the_name_of_its_file() -> None:
    factor = 3

    class Local:
        def times(self, number: int) -> int:
            return number * factor

    arrived = pickle.loads(dumps(Local())[0])
    assert arrived.times(2) == 6
    assert arrived.times.__code__.co_filename == __file__
    assert sent(lambda number: number + factor)(1) == 4


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 7, 2.5, "text", ()),
        *(((), {}), ((1, "two", None), {}), ((1,), {"by": 2}), (((), {}), {}), (1, 2), ((b"x", [1]), {})),
    ],
    ids=repr,
)
def test_small_values_arrive_equal_and_of_their_type(value: Any) -> None:
    arrived = sent(value)
    assert arrived == value
    assert type(arrived) is type(value)


@pytest.mark.parametrize("make", [numpy.arange, torch.arange], ids=["arrays", "tensors"])
def test_a_pair_of_what_has_no_truth_value_arrives(make: Callable[[int], Any]) -> None:
    inputs, targets = sent((make(3), make(2)))
    assert inputs.tolist() == [0, 1, 2]
    assert targets.tolist() == [0, 1]


def test_a_number_of_a_class_of_nowhere_goes_by_value() -> None:
    class Local(int):
        pass

    assert type(pickle.loads(dumps(Local(3))[0])).__name__ == "Local"
    assert pickle.loads(dumps(((Local(3),), {}))[0]) == ((3,), {})


def test_what_can_be_imported_goes_by_its_name() -> None:
    assert sent(LARGE.__class__) is int
    assert sent(sent) is sent
    assert len(dumps(sent)[0]) < 100


def test_what_cannot_be_pickled_is_said_with_its_reason() -> None:
    with pytest.raises(InvalidArgument, match="unpicklable: a value cannot be sent: TypeError: cannot"):
        dumps([Lock()])
