"""Reductions: many values to one, in parts. Pure.

    >>> combine("sum", [1, 2, 3])
    6
    >>> combine("max", [[1, 9], [2, 0]])
    [2, 0]

A function of two values is to be associative, since values are combined in groups; where ranks do not lie
host by host, commutative too. Arrays and tensors are combined element by element.
"""

from __future__ import annotations

import operator
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal, TypeAlias

from ..errors import InvalidArgument
from ..pickling import dumps, loads

__all__ = ["Operation", "check_operation", "combine", "finished", "packed_operation", "read_operation"]

Operation: TypeAlias = Literal["sum", "min", "max", "mean"] | Callable[[Any, Any], Any]

_NAMES = ("sum", "min", "max", "mean")


def check_operation(operation: object) -> None:
    """
    Raises:
        InvalidArgument: neither one of the names nor a function.
    """
    if operation not in _NAMES and not callable(operation):
        raise InvalidArgument(
            "invalid_argument",
            f"{operation!r:.60} is no reduction",
            f"Give one of {', '.join(_NAMES)}, or a function of two values.",
        )


def packed_operation(operation: Operation) -> bytes:
    """As it is sent to relays. Raises InvalidArgument: unpicklable."""
    body, buffers = dumps(operation)
    return pickle.dumps((body, [bytes(buffer) for buffer in buffers]), 5)


def read_operation(packed: bytes) -> Operation:
    """Raises whatever unpickling raises."""
    body, buffers = pickle.loads(packed)
    operation: Operation = loads(body, [memoryview(buffer) for buffer in buffers])
    return operation


def combine(operation: Operation, values: Sequence[Any]) -> Any:
    """One value of one or more, in their order; of `mean` the sum. Raises what the operation raises."""
    if callable(operation):
        function: Callable[[Any, Any], Any] = operation
    else:
        function = {"sum": operator.add, "mean": operator.add, "min": _least, "max": _most}[operation]
    return reduce(function, values)


def finished(operation: Operation, value: Any, count: int) -> Any:
    """The result, of the combined value of `count` ranks."""
    return value / count if operation == "mean" else value


def _least(one: Any, other: Any) -> Any:
    by_element = _by_element(one, other, "minimum")
    if by_element is not None:
        return by_element(one, other)
    return min(one, other)


def _most(one: Any, other: Any) -> Any:
    by_element = _by_element(one, other, "maximum")
    if by_element is not None:
        return by_element(one, other)
    return max(one, other)


def _by_element(one: Any, other: Any, name: str) -> Any:
    """The library's own function where one of the values is its array; whoever has one has imported it."""
    for library, kind in (("torch", "Tensor"), ("numpy", "ndarray")):
        module = sys.modules.get(library)
        if module is not None and isinstance(one, getattr(module, kind)):
            return getattr(module, name)
        if module is not None and isinstance(other, getattr(module, kind)):
            return getattr(module, name)
    return None
