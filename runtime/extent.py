"""Shapes: named dimensions, their sizes, and the numbers of what they hold. Pure.

Ranks run row by row: the last dimension fastest.

    >>> extent = Extent(hosts=2, gpus=4)
    >>> extent.size, extent.coordinates(5)
    (8, {'hosts': 1, 'gpus': 1})
    >>> extent.split(gpus=("dp", "tp"), tp=2)
    Extent(hosts=2, dp=2, tp=2)
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from .errors import InvalidArgument, NotFound

__all__ = ["Extent", "Point", "no_dimension", "no_such", "plural", "whole"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = 60
_MOST = 2**53
_NAMES_STEP = "Name a dimension as a Python argument is named, and each only once."
_SIZES_STEP = "Give each dimension a size of 1 or more."


@dataclass(frozen=True, slots=True, init=False)
class Extent:
    """Names and sizes of dimensions, in order; `Extent()` has none, and one rank.

    Raises:
        InvalidArgument: a name that is no identifier, a size that is no whole number of 1 or more.
    """

    labels: tuple[str, ...]
    shape: tuple[int, ...]

    def __init__(self, /, **sizes: SupportsIndex) -> None:
        object.__setattr__(self, "labels", tuple(_named(name) for name in sizes))
        object.__setattr__(self, "shape", tuple(_sized(name, size) for name, size in sizes.items()))

    def __reduce__(self) -> tuple[object, tuple[tuple[str, ...], tuple[int, ...]]]:
        return _restored, (self.labels, self.shape)

    def __repr__(self) -> str:
        return f"Extent({self})"

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())

    def __contains__(self, label: object) -> bool:
        return label in self.labels

    def __getitem__(self, label: str) -> int:
        """The size of one dimension. Raises InvalidArgument where there is none of that name."""
        return self.shape[self.axis(label)]

    def axis(self, label: str) -> int:
        """The place of a dimension among the others. Raises InvalidArgument where there is none."""
        if label not in self.labels:
            raise no_dimension(label, self)
        return self.labels.index(label)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return math.prod(self.shape)

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, self.shape, strict=True))

    @property
    def hosts(self) -> int:
        """The number of hosts: 1 where no dimension is named so."""
        return self["hosts"] if "hosts" in self.labels else 1

    @property
    def gpus(self) -> int:
        """The size of the dimension `gpus`. Raises InvalidArgument where there is none."""
        return self["gpus"]

    @property
    def strides(self) -> tuple[int, ...]:
        """By how much a rank grows with each coordinate."""
        strides, step = [], 1
        for size in reversed(self.shape):
            strides.append(step)
            step *= size
        return tuple(reversed(strides))

    def coordinates(self, rank: SupportsIndex) -> dict[str, int]:
        """Where a rank is. Raises NotFound: rank_not_found."""
        at = whole("rank", rank)
        if not 0 <= at < self.size:
            raise no_such("rank", str(at), self.size, f"The extent is {self!r}.")
        steps = zip(self.labels, self.shape, self.strides, strict=True)
        return {label: at // stride % size for label, size, stride in steps}

    def rank(self, /, **coordinates: SupportsIndex) -> int:
        """The rank at one coordinate for every dimension; negative ones count from the end.

        Raises:
            InvalidArgument: a dimension is missing or unknown. NotFound: a coordinate is out of range.
        """
        for label in coordinates:
            self.axis(label)
        missing = [label for label in self.labels if label not in coordinates]
        if missing:
            raise InvalidArgument(
                "invalid_argument",
                f"no coordinate for {', '.join(missing)}",
                f"Name one for each of {', '.join(self.labels)}.",
            )
        steps = zip(self.labels, self.shape, self.strides, strict=True)
        return sum(self._within(label, size, coordinates[label]) * stride for label, size, stride in steps)

    @staticmethod
    def _within(label: str, size: int, coordinate: SupportsIndex) -> int:
        at = whole(label, coordinate)
        if not -size <= at < size:
            raise no_such(label, str(at), size)
        return at % size

    def host_of(self, rank: int) -> int:
        """The host that a rank is on."""
        return rank // self.strides[self.axis("hosts")] % self.hosts if "hosts" in self.labels else 0

    def local_rank(self, rank: int) -> int:
        """A rank's number among those of its host."""
        if "hosts" not in self.labels:
            return rank
        inner = self.strides[self.axis("hosts")]
        return rank // (inner * self.hosts) * inner + rank % inner

    def flatten(self, name: str) -> Extent:
        """One dimension of all ranks. Raises InvalidArgument for a name that is none."""
        return _extent([name], [self.size])

    def rename(self, /, **names: str) -> Extent:
        """Other names for some dimensions: `rename(gpus="tp")`.

        Raises:
            InvalidArgument: no such dimension, or two would have one name.
        """
        for label in names:
            self.axis(label)
        return _extent([names.get(label, label) for label in self.labels], self.shape)

    def reshape(self, /, **sizes: SupportsIndex) -> Extent:
        """The same ranks in other dimensions; a size of -1 is what is left for it.

        Raises:
            InvalidArgument: the sizes do not make up the number of ranks.
        """
        return Extent(**_filled(sizes, self.size, f"{self.size} ranks"))

    def split(self, /, **names: Sequence[str] | SupportsIndex) -> Extent:
        """Several dimensions in place of one: `split(gpus=("dp", "tp"), tp=2)`.

        The names of existing dimensions tell the new ones; the others are sizes. One size of each split
        dimension can be left out.

        Raises:
            InvalidArgument: the sizes do not make up the dimension, a name is taken or unknown.
        """
        parts, given = self._split_names(names)
        labels: list[str] = []
        shape: list[int] = []
        for label, size in self.sizes.items():
            sizes = _filled(
                {part: given.pop(part, -1) for part in parts[label]} if label in parts else {label: size},
                size,
                f"{label} of size {size}",
            )
            labels += sizes
            shape += sizes.values()
        if given:
            unknown = next(iter(given))
            raise InvalidArgument(
                "invalid_argument",
                f"{unknown[:_QUOTED]!r} is neither a dimension nor a part of one",
                f"Dimensions are {', '.join(self.labels)}.",
            )
        return _extent(labels, shape)

    def _split_names(
        self, names: Mapping[str, Sequence[str] | SupportsIndex]
    ) -> tuple[dict[str, Sequence[str]], dict[str, SupportsIndex]]:
        parts: dict[str, Sequence[str]] = {}
        given: dict[str, SupportsIndex] = {}
        for name, value in names.items():
            if name not in self.labels:
                given[name] = _sized(name, value)
            elif isinstance(value, str) or not isinstance(value, Sequence) or not value:
                raise InvalidArgument(
                    "invalid_argument",
                    f"{name} is to be split into {value!r:.{_QUOTED}}",
                    f'Give the names of its parts: {name}=("a", "b"), a=2.',
                )
            else:
                # A part that is named twice would be lost in a mapping.
                parts[name] = _distinct(value)
        return parts, given


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Point(Mapping[str, int]):
    """One place in an extent: its coordinates as a mapping, equal to a dict of them, and its `rank`.

    `rank` is the number in the mesh that was spawned, whatever slice the extent is.

        >>> point = Point(5, Extent(hosts=2, gpus=4), 5)
        >>> point["gpus"], point.rank, point == {"hosts": 1, "gpus": 1}
        (1, 5, True)
    """

    rank: int
    extent: Extent
    position: int

    def __getitem__(self, label: str) -> int:
        extent = self.extent
        if label not in extent.labels:  # a mapping's own error: `get` and `in` rest on it
            raise KeyError(label)
        axis = extent.labels.index(label)
        return self.position // extent.strides[axis] % extent.shape[axis]

    def __iter__(self) -> Iterator[str]:
        return iter(self.extent.labels)

    def __len__(self) -> int:
        return len(self.extent.labels)

    def size(self, label: str) -> int:
        """The size of one dimension."""
        return self.extent[label]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Point):
            return (self.rank, self.position, self.extent) == (other.rank, other.position, other.extent)
        return isinstance(other, Mapping) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash((self.rank, self.position, self.extent))

    def __repr__(self) -> str:
        return f"Point({', '.join(f'{name}={at}' for name, at in {'rank': self.rank, **self}.items())})"


def no_dimension(label: str, extent: Extent, step: str = "Use one of these.") -> InvalidArgument:
    """The error for a dimension that is not there; it names those that are."""
    known = f"dimensions are {', '.join(extent.labels)}" if extent.labels else "there are no dimensions"
    return InvalidArgument("invalid_argument", f"no dimension {label[:_QUOTED]!r}; {known}", step)


def no_such(what: str, number: str, size: int, step: str = "Use one of these.") -> NotFound:
    """The error for a rank, or for an index in the dimension `what`, that is not there."""
    one = what.removesuffix("s") or what
    several = plural(what)
    known = "only 0" if size == 1 else f"0-{size - 1}"
    code = "host_not_found" if one == "host" else "rank_not_found"
    verb = "are" if several != one else "is"
    return NotFound(code, f"no {one} {number}; {several} {verb} {known}", step)


def plural(what: str) -> str:
    """Ranks, hosts, gpus; dimensions such as dp or batch stay as they are."""
    return f"{what}s" if what in ("rank", "host") else what


def whole(name: str, value: object) -> int:
    """An argument as an integer. Raises InvalidArgument: it is none, or beyond all reason."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(
            "invalid_argument", f"{name}={value!r:.{_QUOTED}} is no whole number", "Give an integer."
        ) from None
    if abs(number) > _MOST:
        raise InvalidArgument("invalid_argument", f"{name} is beyond {_MOST}", "Give a smaller number.")
    return number


def _restored(labels: tuple[str, ...], shape: tuple[int, ...]) -> Extent:
    return Extent(**dict(zip(labels, shape, strict=True)))


def _extent(labels: Sequence[str], shape: Sequence[int]) -> Extent:
    return Extent(**dict(zip(_distinct(labels), shape, strict=True)))


def _distinct(labels: Sequence[object]) -> list[str]:
    names = [_named(label) for label in labels]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InvalidArgument(
                "invalid_argument", f"two dimensions would be named {name[:_QUOTED]}", _NAMES_STEP
            )
    return names


def _named(name: object) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidArgument("invalid_argument", f"{name!r:.{_QUOTED}} names no dimension", _NAMES_STEP)
    return name


def _sized(name: str, value: object) -> int:
    size = whole(name, value)
    if size < 1:
        raise InvalidArgument("invalid_argument", f"{name}={size} is no size", _SIZES_STEP)
    return size


def _filled(sizes: Mapping[str, SupportsIndex], total: int, what: str) -> dict[str, int]:
    """The sizes with the one of -1 worked out, checked to make up `total`."""
    filled = {_named(name): whole(name, size) for name, size in sizes.items()}
    open_ones = [name for name, size in filled.items() if size == -1]
    known = math.prod(_sized(name, size) for name, size in filled.items() if size != -1)
    if len(open_ones) > 1:
        raise InvalidArgument(
            "invalid_argument",
            f"the sizes of {', '.join(open_ones)} are open",
            "Leave at most one size open.",
        )
    if open_ones and total % known == 0:
        filled[open_ones[0]] = total // known
    elif open_ones or known != total:
        words = ", ".join(f"{name}={size if size != -1 else '?'}" for name, size in filled.items())
        raise InvalidArgument(
            "invalid_argument", f"{what} cannot be {words or 'one'}", "Give sizes whose product it is."
        )
    return filled
