"""Regions: which ranks of a mesh a slice of it holds, and in which dimensions. Pure.

    >>> whole = Region.of(Extent(hosts=2, gpus=4))
    >>> whole.slice(gpus=slice(2, None))
    Region(hosts=2, gpus=2; ranks 2-3,6-7)
    >>> whole.slice(hosts=-1).coordinates(6)
    {'gpus': 2}

Indices are as numpy's, negative ones count from the end, but nothing is cut to fit: what lies outside, a
range included, is an error, and so is a slice that would be empty or would hold a rank twice.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsIndex, TypeAlias

from .errors import InvalidArgument, NotFound
from .extent import Extent, Point, no_such, whole
from .mesh import format_ranks

__all__ = ["Index", "Region"]

Index: TypeAlias = SupportsIndex | slice | Iterable[SupportsIndex]

_QUOTED = 60
_INDEX_STEP = "Give an index, a slice(first, end), a range or a list of indices."


@dataclass(frozen=True, repr=False)
class Region:
    """An extent and the rank at each of its positions, each rank once, numbered as when it was spawned.

    `ranks` is a range wherever the ranks are evenly spaced: then a region of any size is a few numbers.

    Raises:
        InvalidArgument: not one rank for each position, or one twice.
    """

    extent: Extent
    ranks: Sequence[int]

    def __post_init__(self) -> None:
        ranks = _progression(self.ranks)
        object.__setattr__(self, "ranks", ranks)
        if len(ranks) != self.extent.size:
            raise InvalidArgument(
                "invalid_argument",
                f"{len(ranks)} ranks do not fill {self.extent!r}",
                f"Give {self.extent.size} ranks.",
            )
        if not isinstance(ranks, range) and len(set(ranks)) < len(ranks):
            twice = next(rank for at, rank in enumerate(ranks) if rank in ranks[:at])
            raise InvalidArgument("invalid_argument", f"rank {twice} is there twice", "Name each rank once.")

    @classmethod
    def of(cls, extent: Extent) -> Region:
        """All ranks of an extent."""
        return cls(extent, range(extent.size))

    def __reduce__(self) -> tuple[type[Region], tuple[Extent, Sequence[int]]]:
        return Region, (self.extent, self.ranks)

    def __repr__(self) -> str:
        return f"Region({self.described()})"

    def described(self) -> str:
        """Sizes and ranks in a few words: `hosts=2, gpus=2; ranks 2-3,6-7`."""
        ranks = format_ranks(self.ranks)
        return f"{self.extent}; ranks {ranks}" if self.extent.labels else f"rank {ranks}"

    @property
    def sizes(self) -> dict[str, int]:
        return self.extent.sizes

    def size(self, dim: str | Sequence[str] | None = None) -> int:
        """The size of a dimension, the product of several, or how many ranks there are.

        Raises:
            InvalidArgument: no such dimension.
        """
        if dim is None:
            return self.extent.size
        return math.prod(self.extent[label] for label in ((dim,) if isinstance(dim, str) else dim))

    def __len__(self) -> int:
        return len(self.ranks)

    def slice(self, /, **indices: Index) -> Region:
        """A part: `slice(gpus=0)` drops the dimension; `slice(gpus=slice(1, None))`, `range(0, 4, 2)` and
        `[0, 3]` keep it.

        Raises:
            InvalidArgument: no such dimension, no index, an empty part, a slice that reaches outside.
            NotFound: host_not_found, rank_not_found: an index that is not there.
        """
        for label in indices:
            self.extent.axis(label)
        positions, sizes = [0], {}
        for (label, size), stride in zip(self.sizes.items(), self.extent.strides, strict=True):
            members = _members(label, size, indices[label]) if label in indices else range(size)
            if isinstance(members, int):
                members = range(members, members + 1)
            else:
                sizes[label] = len(members)
            positions = [start + at * stride for start in positions for at in members]
        return Region(Extent(**sizes), [self.ranks[at] for at in positions])

    def flatten(self, name: str) -> Region:
        """All ranks in one dimension, in their order. Raises as `Extent.flatten`."""
        return Region(self.extent.flatten(name), self.ranks)

    def rename(self, /, **names: str) -> Region:
        """Other names for some dimensions. Raises as `Extent.rename`."""
        return Region(self.extent.rename(**names), self.ranks)

    def reshape(self, /, **sizes: SupportsIndex) -> Region:
        """The same ranks in other dimensions. Raises as `Extent.reshape`."""
        return Region(self.extent.reshape(**sizes), self.ranks)

    def split(self, /, **names: Sequence[str] | SupportsIndex) -> Region:
        """Several dimensions in place of one. Raises as `Extent.split`."""
        return Region(self.extent.split(**names), self.ranks)

    @cached_property
    def _positions(self) -> Mapping[int, int]:
        return {rank: at for at, rank in enumerate(self.ranks)}

    def __contains__(self, rank: object) -> bool:
        return rank in (self.ranks if isinstance(self.ranks, range) else self._positions)

    def position(self, rank: int) -> int:
        """The place of a rank in the order of the dimensions. Raises NotFound: rank_not_found."""
        if rank not in self:
            raise NotFound(
                "rank_not_found",
                f"no rank {rank!r:.{_QUOTED}} here; ranks are {format_ranks(self.ranks):.{_QUOTED}}",
                "Use one of these.",
            )
        return self.ranks.index(rank) if isinstance(self.ranks, range) else self._positions[rank]

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank is. Raises NotFound: rank_not_found."""
        return self.extent.coordinates(self.position(rank))

    def point(self, rank: int) -> Point:
        """Where a rank is, with the rank. Raises NotFound: rank_not_found."""
        return Point(rank, self.extent, self.position(rank))

    def points(self) -> Iterator[Point]:
        """Every place, in the order of the dimensions."""
        return (Point(rank, self.extent, at) for at, rank in enumerate(self.ranks))

    def rank(self, /, **coordinates: SupportsIndex) -> int:
        """The rank at one coordinate for every dimension.

        Raises:
            InvalidArgument: a dimension is missing or unknown. NotFound: a coordinate is out of range.
        """
        return self.ranks[self.extent.rank(**coordinates)]


def _progression(ranks: Sequence[int]) -> Sequence[int]:
    """The same ranks as a range, if they are one; equal regions then have equal fields."""
    if isinstance(ranks, range):
        return ranks
    step = (ranks[1] - ranks[0]) if len(ranks) > 1 else 1
    if not ranks or step == 0:
        return tuple(ranks)
    even = range(ranks[0], ranks[0] + step * len(ranks), step)
    return even if all(a == b for a, b in zip(ranks, even, strict=True)) else tuple(ranks)


def _members(label: str, size: int, index: Index) -> int | Sequence[int]:
    """What an index names in a dimension: one number where it drops the dimension."""
    if isinstance(index, builtins.slice):
        return _bounded(label, size, index)
    if isinstance(index, (str, bytes, AbstractSet, Mapping)) or not isinstance(
        index, (SupportsIndex, Iterable)
    ):
        raise InvalidArgument("invalid_argument", f"{label}={index!r:.{_QUOTED}} is no index", _INDEX_STEP)
    if not isinstance(index, Iterable) or getattr(index, "shape", None) == ():
        return _within(label, size, index)
    members = [_within(label, size, at) for at in index]
    if not members:
        raise _nothing(f"{label}={index!r:.{_QUOTED}}")
    if len(set(members)) < len(members):
        raise InvalidArgument(
            "invalid_argument", f"{label}={index!r:.{_QUOTED}} names an index twice", "Name each once."
        )
    return members


def _within(label: str, size: int, index: object) -> int:
    at = whole(label, index)
    if not -size <= at < size:
        raise no_such(label, str(at), size)
    return at % size


def _bounded(label: str, size: int, index: builtins.slice) -> range:
    first, end, step = (
        None if bound is None else whole(label, bound) for bound in (index.start, index.stop, index.step)
    )
    written = f"{label}=slice({first}, {end}, {step})"
    if step == 0:
        raise InvalidArgument("invalid_argument", f"{written} has a step of 0", _INDEX_STEP)
    last_start = size if step is None or step > 0 else size - 1
    for bound, most in ((first, last_start), (end, size)):
        if bound is not None and not -size <= bound <= most:
            raise InvalidArgument(
                "invalid_argument",
                f"{written} reaches outside {label}, which has {size}",
                "Leave a bound open with None to reach the end.",
            )
    members = range(*builtins.slice(first, end, step).indices(size))
    if not members:
        raise _nothing(written)
    return members


def _nothing(written: str) -> InvalidArgument:
    return InvalidArgument("invalid_argument", f"{written} chooses nothing", _INDEX_STEP)
