"""Records to JSON values and back, by their type annotations.

Unknown keys are ignored and missing ones take the field's default, so that a record written by one version
is read by its neighbours.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin

__all__ = ["from_json", "to_json"]

R = TypeVar("R")


def to_json(value: Any) -> Any:
    """A record, or a container of records, as plain dicts, lists and scalars; defaults are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(item)
            for field in dataclasses.fields(value)
            if (item := getattr(value, field.name)) != field.default
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def from_json(cls: type[R], value: Any) -> R:
    """The record of type `cls` that `to_json` wrote.

    Raises:
        TypeError, KeyError, ValueError: the value does not have that shape.
    """
    result: R = _read(cls, value)
    return result


def _read(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not type(None)]
        return None if value is None else _read(inner[0], value)
    if origin is tuple:
        args = get_args(hint)
        items = args[:1] * len(value) if args[-1] is Ellipsis else args
        return tuple(_read(item, part) for item, part in zip(items, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, item = get_args(hint)
        return {key(k): _read(item, v) for k, v in value.items()}
    if dataclasses.is_dataclass(hint):
        hints = _hints(typing.cast(type, hint))
        return hint(**{name: _read(hints[name], part) for name, part in value.items() if name in hints})  # type: ignore[operator]
    return value


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: hint for name, hint in typing.get_type_hints(cls).items() if name in names}
