"""What can be a buffer, or the near end of a transfer: memory of the host, or of a device."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import InvalidArgument
from .device import DeviceMemory
from .pinned import Pinned, pinned
from .torch_device import TorchMemory

__all__ = ["Held", "hold"]

Held = Pinned | DeviceMemory

_KINDS = "Give contiguous memory: bytes-like, a numpy array, a tensor; a new buffer may be a size in bytes."


def hold(value: Any, *, writable: bool = False) -> Held:
    """
    Raises:
        InvalidArgument: it is no contiguous memory of this process or its devices, or cannot be written to.
    """
    held = value if isinstance(value, Pinned | DeviceMemory) else _on_device(value) or pinned(_flat(value))
    if writable and held.is_readonly:
        raise InvalidArgument(
            "invalid_argument", f"this {_name(value)} cannot be written to", "Give memory that can be."
        )
    return held


def _on_device(value: Any) -> DeviceMemory | None:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.is_cpu:
        return None
    if not value.is_cuda:  # so are HIP's
        raise InvalidArgument("unsupported", f"a tensor on {value.device}", "Copy it to the CPU first.")
    _refuse_unless(_is_plain(torch, value), value, "is not contiguous")
    return TorchMemory(torch, value)


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
    _refuse_unless(_is_plain(torch, tensor), tensor, "is not contiguous")
    # From now on torch refuses to resize the storage.
    if tensor.dtype is torch.uint8:
        return tensor.numpy()
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _is_plain(torch: Any, tensor: Any) -> bool:
    plain = tensor.layout is torch.strided and tensor.is_contiguous()
    return bool(plain and not tensor.is_conj() and not tensor.is_neg())


def _refuse_unless(holds: bool, value: Any, why: str) -> None:
    if not holds:
        raise InvalidArgument("invalid_argument", f"this {_name(value)} {why}", _KINDS)


def _name(value: Any) -> str:
    return type(value).__name__
