"""What can be a buffer, and that it stays where it is."""

from __future__ import annotations

import array
import mmap
from typing import Any

import numpy as np
import pytest
import torch

from milkweed.runtime import RDMABuffer
from milkweed.runtime.errors import Conflict, InvalidArgument
from milkweed.runtime.memory.holding import hold
from milkweed.runtime.memory.pinned import Pinned

DEADLINE_S = 30.0


def content(value: Any) -> bytes:
    held = hold(value)
    assert isinstance(held, Pinned)
    return bytes(held.view)


def test_all_kinds_of_contiguous_memory_are_taken() -> None:
    assert content(b"abc") == content(bytearray(b"abc")) == content(memoryview(b"abc")) == b"abc"
    assert content(array.array("i", [1, 2])) == np.array([1, 2], np.int32).tobytes()
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert content(grid) == grid.tobytes()
    assert (
        content(np.array("2026-01-01", "datetime64[D]")) == np.array("2026-01-01", "datetime64[D]").tobytes()
    )
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int8):
        tensor = torch.ones(2, 3, dtype=dtype)
        assert content(tensor) == bytes(tensor.view(torch.uint8).numpy())
    assert content(torch.tensor(1.0, requires_grad=True)) == np.float32(1).tobytes()
    for empty in (b"", np.zeros((0, 3)), torch.zeros(0), bytearray()):
        assert content(empty) == b""
    with mmap.mmap(-1, 4096) as area:
        held = hold(area)
        assert held.size == 4096
        held.release()


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::2],
        np.array([object()]),
        memoryview(b"abcd")[::2],
        torch.arange(12).reshape(3, 4).T,
        torch.arange(12)[::2],
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(2, 2).to_sparse(),
        torch.empty(3, device="meta"),
        "text",
        3.5,
        None,
        [1, 2],
    ],
)
def test_what_is_no_contiguous_memory_of_this_process_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        hold(value)


def test_memory_of_a_buffer_stays_where_it_is_until_it_is_dropped() -> None:
    growing, tensor = bytearray(100), torch.zeros(100)
    buffers = [RDMABuffer(growing), RDMABuffer(tensor)]
    with pytest.raises(BufferError):
        growing.extend(b"more")
    with pytest.raises(RuntimeError, match="resiz"):
        tensor.resize_(1_000_000)
    del tensor
    for buffer in buffers:
        buffer.drop().get(DEADLINE_S)
    growing.extend(b"more")


def test_a_buffer_of_a_size_is_new_memory() -> None:
    buffer = RDMABuffer(10_000)
    assert buffer.memory == bytes(10_000)
    buffer.memory[:3] = b"abc"
    dst = bytearray(4)
    buffer.read_into(dst, 0, 4).get(DEADLINE_S)
    assert dst == b"abc\0"
    kept = buffer.memory[:3]
    buffer.drop().get(DEADLINE_S)
    assert kept == b"abc"  # what the program still looks at stays
    with pytest.raises(Conflict, match="buffer_dropped"):
        _ = buffer.memory
    buffer.drop().get(DEADLINE_S)
    assert RDMABuffer(0).size() == 0


@pytest.mark.parametrize("size", [np.prod((10, 4)), np.uint8(40)])
def test_a_size_may_be_an_integer_of_numpy(size: Any) -> None:
    buffer = RDMABuffer(size)
    assert (buffer.size(), bytes(buffer.memory)) == (40, bytes(40))
    buffer.drop().get(DEADLINE_S)
    with pytest.raises(InvalidArgument, match="bool"):
        RDMABuffer(True)


def test_memory_that_cannot_be_written_to_can_be_read_only() -> None:
    buffer = RDMABuffer(b"constant")
    dst = bytearray(8)
    buffer.read_into(dst).get(DEADLINE_S)
    assert dst == b"constant"
    with pytest.raises(Conflict, match="access_refused"):
        buffer.write_from(b"other").get(DEADLINE_S)
    with pytest.raises(InvalidArgument, match="without rights"):
        RDMABuffer(b"constant", read=False)
    with pytest.raises(InvalidArgument):
        RDMABuffer(-1)
    buffer.drop().get(DEADLINE_S)
