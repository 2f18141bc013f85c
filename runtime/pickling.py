"""Values of calls as bytes: pickle protocol 5, large buffers beside the pickle and not in it.

Arrays and CPU tensors are sent from their own memory, and made again on memory that was received into, with
no copy on either side. What the other side cannot import goes by value (cloudpickle): functions and classes
of `__main__`, of a notebook, or made within a function.
"""

from __future__ import annotations

import io
import operator
import pickle
import sys
from collections import ChainMap
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from . import _native
from .errors import InvalidArgument

__all__ = ["Pickled", "dumps", "loads"]

_LEAST_BUFFER = 4096
_MOST_BUFFERS = 32 * 1024  # half of what a frame takes; the rest goes within the pickle
_LEAST_ASIDE = 256 * 1024
_PLAIN = frozenset({type(None), bool, int, float, str})
_LEAST_HUGE = 4 * 1024 * 1024

Pickled = tuple[bytes, list[memoryview]]


def dumps(value: Any) -> Pickled:
    """
    Raises:
        InvalidArgument: unpicklable, with what could not be pickled and why.
    """
    if _is_plain(value):
        return pickle.dumps(value, 5), []
    buffers: list[memoryview] = []

    def out_of_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous: numpy has copied it already
            return True
        if raw.nbytes < _LEAST_BUFFER or len(buffers) >= _MOST_BUFFERS:
            return True
        buffers.append(raw)
        return False

    file = io.BytesIO()
    try:
        _Pickler(file, 5, buffer_callback=out_of_band).dump(_with_bytes_aside(value, 2))
    except Exception as error:
        raise InvalidArgument(
            "unpicklable",
            f"a value cannot be sent: {type(error).__name__}: {error}",
            "Send plain data, arrays, or instances of importable classes.",
        ) from error
    return file.getvalue(), buffers


def loads(body: bytes | memoryview, buffers: Sequence[memoryview] = ()) -> Any:
    """The value; whatever unpickling raises is raised."""
    return pickle.loads(body, buffers=buffers)


def _is_plain(value: Any) -> bool:
    """Numbers, texts, or `(args, {})` of them, as most arguments and answers: the rest is for others."""
    kind = type(value)
    if kind is not tuple:
        return kind in _PLAIN
    return (
        len(value) == 2
        and type(value[1]) is dict  # before its truth is asked: an array has none
        and not value[1]
        and type(value[0]) is tuple
        and all(type(one) in _PLAIN for one in value[0])
    )


def _with_bytes_aside(value: Any, depth: int) -> Any:
    """Large bytes are copied into a pickle, whatever its pickler does: those that are arguments, or the value
    itself, go beside it.
    """
    kind = type(value)
    if kind is bytes:
        return _Aside(value) if len(value) >= _LEAST_ASIDE else value
    if not depth:
        return value
    if kind is tuple:
        items = [_with_bytes_aside(item, depth - 1) for item in value]
        return tuple(items) if any(map(operator.is_not, items, value)) else value
    if kind is dict:
        items = [_with_bytes_aside(item, depth - 1) for item in value.values()]
        changed = any(map(operator.is_not, items, value.values()))
        return dict(zip(value, items, strict=True)) if changed else value
    return value


class _Aside:
    """Arrives as the bytes that it holds."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return _bytes_of, (pickle.PickleBuffer(self._data),)


def _bytes_of(data: memoryview | bytes) -> bytes:
    if type(data) is memoryview and len(data) >= _LEAST_HUGE:
        return _native.copied_to_bytes(data)
    return bytes(data)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is FunctionType or issubclass(kind, type):
            return _by_value(value) if not _importable(value) else NotImplemented
        torch = sys.modules.get("torch")
        if torch is not None and kind is torch.Tensor:
            return _reduce_tensor(torch, value)
        return NotImplemented


def _importable(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    if module is None or module == "__main__" or "<locals>" in value.__qualname__:
        return False
    found: Any = sys.modules.get(module)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _by_value(value: Any) -> Any:
    file = io.BytesIO()
    _by_value_pickler()(file, 5).dump(value)
    return _made_by_value, (file.getvalue(),)


@cache
def _by_value_pickler() -> type[pickle.Pickler]:
    """cloudpickle's, but for code, which keeps the name of its file: tracebacks and stacks show it."""
    import cloudpickle

    base: Any = cloudpickle.CloudPickler
    reduce_code = base.dispatch_table[CodeType]

    def reduce(code: CodeType) -> Any:
        return _code_of, (reduce_code(code)[1], code.co_filename)

    return type("_ByValue", (base,), {"dispatch_table": ChainMap({CodeType: reduce}, base.dispatch_table)})


def _code_of(parts: tuple[Any, ...], filename: str) -> CodeType:
    return CodeType(*parts).replace(co_filename=filename)


def _made_by_value(text: bytes) -> Any:
    return pickle.loads(text)


def _reduce_tensor(torch: Any, tensor: Any) -> Any:
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or tensor.is_conj() or tensor.is_neg() or not tensor.numel():
        return NotImplemented
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return NotImplemented  # expanded: it is far larger than its memory
    # What is not contiguous is copied once, and nothing else of the memory that it is a view of is sent.
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor_of, (pickle.PickleBuffer(flat), tensor.dtype, tuple(tensor.shape), tensor.requires_grad)


def _tensor_of(buffer: Any, dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    torch = import_module("torch")
    if memoryview(buffer).readonly:
        buffer = bytearray(buffer)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape).requires_grad_(requires_grad)
