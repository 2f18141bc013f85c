"""Memory that stays where it is: what can be a buffer, or the near end of a transfer."""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .. import _native_memory as native
from ..errors import InvalidArgument

__all__ = ["Pinned", "allocate", "pin"]

_KINDS = "Give contiguous memory: bytes-like, a numpy array, a CPU tensor, or a size in bytes."


@dataclass(frozen=True, slots=True, eq=False)
class Pinned:
    """Bytes at an address. While `view` is held, the memory neither moves nor goes.

    `file` is the descriptor of memory that is a file of its own (`area`), else -1.
    """

    view: memoryview
    address: int
    file: int = -1
    area: mmap.mmap | None = None

    @property
    def size(self) -> int:
        return self.view.nbytes

    def release(self) -> None:
        """Lets go of it; memory that we allocated is freed unless the program still has a view of it."""
        self.view.release()
        if self.area is not None:
            with suppress(BufferError):
                self.area.close()
            os.close(self.file)


def pin(value: Any, *, writable: bool = False) -> Pinned:
    """
    Raises:
        InvalidArgument: it is no contiguous memory of this process, or cannot be written to.
    """
    view = _flat(value)
    if writable and view.readonly:
        raise InvalidArgument(
            "invalid_argument", f"this {_name(value)} cannot be written to", "Give memory that can be."
        )
    return Pinned(view, native.address_of(view) if view.nbytes else 0)


def allocate(size: int) -> Pinned:
    """New memory, zeros, in a file that other processes of this host can map.

    Raises:
        InvalidArgument: the size is negative.
        OSError: there is no room.
    """
    if size < 0:
        raise InvalidArgument("invalid_argument", f"a buffer of {size} bytes", _KINDS)
    if size == 0:
        return pin(bytearray())
    file = os.memfd_create("milkweed-buffer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
        # It never becomes shorter below those who have it mapped.
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        area = mmap.mmap(file, size)
    except BaseException:
        os.close(file)
        raise
    view = memoryview(area)
    return Pinned(view, native.address_of(view), file, area)


def _flat(value: Any) -> memoryview:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            value = _array_of(torch, value)
        if numpy is not None and isinstance(value, numpy.ndarray):
            _refuse_unless(value.flags.c_contiguous, value, "is not contiguous")
            _refuse_unless(not value.dtype.hasobject, value, "holds Python objects")
            value = value if value.dtype.kind in "biuf" and value.size else value.reshape(-1).view("u1")
        view = memoryview(value)
    except TypeError:
        raise InvalidArgument("invalid_argument", f"{_name(value)} is no memory", _KINDS) from None
    _refuse_unless(view.c_contiguous, value, "is not contiguous")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _array_of(torch: Any, tensor: Any) -> Any:
    if not tensor.is_cpu:
        raise InvalidArgument(
            "unsupported", f"a tensor on {tensor.device}", "Copy it to the CPU: device memory comes later."
        )
    plain = tensor.layout is torch.strided and tensor.is_contiguous()
    _refuse_unless(plain and not tensor.is_conj() and not tensor.is_neg(), tensor, "is not contiguous")
    # From now on torch refuses to resize the storage.
    if tensor.dtype is torch.uint8:
        return tensor.numpy()
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _refuse_unless(holds: bool, value: Any, why: str) -> None:
    if not holds:
        raise InvalidArgument("invalid_argument", f"this {_name(value)} {why}", _KINDS)


def _name(value: Any) -> str:
    return type(value).__name__
