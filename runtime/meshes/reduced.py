"""What a reduction gives: one value of many ranks, and the error of each that has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from ..region import Region
from .value_mesh import ValueMesh

__all__ = ["Reduced"]

T = TypeVar("T")


class Reduced(Generic[T]):
    """As in a `ValueMesh`, nothing hides: `value()` raises if a rank failed. `ok()` is the value of those
    that did not, `errors()` the error of each that did, and `count` how many ranks `ok()` is of.
    """

    __slots__ = ("_errors", "_region", "_value", "count")

    def __init__(self, region: Region, value: T | None, errors: Mapping[int, Exception]) -> None:
        self._region = region
        self._value = value
        self._errors = {rank: errors[rank] for rank in region.ranks if rank in errors}
        self.count = len(region) - len(self._errors)

    def __reduce__(self) -> tuple[object, tuple[Region, T | None, dict[int, Exception]]]:
        return Reduced, (self._region, self._value, self._errors)

    def __repr__(self) -> str:
        of = f"{self.count} of {len(self._region)} ranks" if self._errors else f"{self.count} ranks"
        return f"Reduced({self._value!r:.60} of {of})"

    @property
    def region(self) -> Region:
        """Which ranks were called."""
        return self._region

    def value(self) -> T:
        """Of all ranks. Raises MeshError: ranks_failed: if one of them failed."""
        if self._errors:
            self._raise()
        return self._value  # type: ignore[return-value]

    def ok(self) -> T:
        """Of the ranks that did not fail. Raises MeshError if all did."""
        if not self.count:
            self._raise()
        return self._value  # type: ignore[return-value]

    def errors(self) -> dict[int, Exception]:
        """By rank; empty if none failed."""
        return dict(self._errors)

    def _raise(self) -> None:
        others = {rank: None for rank in self._region.ranks if rank not in self._errors}
        ValueMesh(self._region, others, self._errors).raise_for_errors()
