"""What a call gives: for each rank of a mesh its value or its error.

>>> from milkweed.runtime.extent import Extent
>>> region = Region.of(Extent(hosts=2, gpus=2))
>>> losses = ValueMesh(region, {0: 0.5, 1: 0.25, 2: 1.0}, {3: ValueError("no data")})
>>> losses
ValueMesh(hosts=2, gpus=2; ranks 0-2; failed 3)
>>> losses.ok()
{0: 0.5, 1: 0.25, 2: 1.0}
>>> losses.slice(hosts=0).values()
[0.5, 0.25]
>>> losses.values()
Traceback (most recent call last):
milkweed.runtime.errors.MeshError: ranks_failed: 1 of 4 ranks failed: ValueError: no data (rank 3). ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, SupportsIndex, TypeVar

from ..errors import ActorError, InvalidArgument, MeshError, MilkweedError, NotFound
from ..extent import Point, whole
from ..mesh import format_ranks
from ..region import Region
from .shaped import Shaped
from .unseen import Unseen

__all__ = ["Failed", "ValueMesh", "mesh_error"]

T = TypeVar("T")
U = TypeVar("U")

_CAUSES = 5
_CAUSE_LENGTH = 200
_RANKS_LENGTH = 60
_STEP = "ok() gives the values of the others, errors() the error of each rank."


@dataclass(frozen=True, slots=True)
class Failed:
    """The outcome of a rank that gave no value. An exception that an endpoint returns is a value."""

    error: Exception


class ValueMesh(Shaped, Generic[T]):
    """One value or one error a rank. Nothing hides: what reads values raises if one of them is an error.

    What endpoints raised, and nobody looked at by any of these, is told on stderr when the mesh goes.
    `ok` and `errors` never raise and tell ranks as the mesh numbered them when it was spawned; `outcomes`
    tells both in order. What reads a single place raises only that rank's own error.

    Raises:
        InvalidArgument: a rank of the region with neither value nor error, or with both.
    """

    __slots__ = ("_errors", "_region", "_unseen", "_values")

    def __init__(
        self,
        region: Region,
        values: Mapping[int, T],
        errors: Mapping[int, Exception] | None = None,
        *,
        unseen: Unseen | None = None,
    ) -> None:
        failed = {} if errors is None else errors
        self._region = region
        self._unseen = unseen
        self._errors = {rank: failed[rank] for rank in region.ranks if rank in failed}
        self._values = {rank: values[rank] for rank in region.ranks if rank in values}
        both = self._errors.keys() & self._values.keys()
        neither = [rank for rank in region.ranks if rank not in self._values and rank not in self._errors]
        if both or neither:
            which = f"{format_ranks(both)} have" if both else f"{format_ranks(neither)} have neither"
            raise InvalidArgument(
                "invalid_argument",
                f"ranks {which} a value {'and' if both else 'nor'} an error",
                "Give one for each rank of the region.",
            )

    @classmethod
    def of(cls, region: Region, outcomes: Mapping[int, T | Failed]) -> ValueMesh[T]:
        """From one mapping of rank to value or `Failed`.

        Raises:
            InvalidArgument: a rank of the region has no outcome.
        """
        values: dict[int, T] = {}
        errors: dict[int, Exception] = {}
        for rank, outcome in outcomes.items():
            if isinstance(outcome, Failed):
                errors[rank] = outcome.error
            else:
                values[rank] = outcome
        return cls(region, values, errors)

    def __reduce__(self) -> tuple[object, tuple[Region, dict[int, T], dict[int, Exception]]]:
        self._look()
        return ValueMesh, (self._region, self._values, self._errors)

    def _look(self) -> None:
        if self._unseen is not None:
            self._unseen.seen = True

    def __repr__(self) -> str:
        self._look()
        parts = [str(self.extent)] if self.extent.labels else []
        if self._values:
            parts.append(_named(self._values))
        if self._errors:
            parts.append(f"failed {_clipped(format_ranks(self._errors), _RANKS_LENGTH)}")
        return f"ValueMesh({'; '.join(parts)})"

    @property
    def region(self) -> Region:
        """Which ranks this holds, in which dimensions."""
        return self._region

    def _over(self, region: Region) -> ValueMesh[T]:
        return ValueMesh(region, self._values, self._errors, unseen=self._unseen)

    def ok(self) -> dict[int, T]:
        """Values by rank, of those that succeeded, in the order of the dimensions."""
        self._look()
        return dict(self._values)

    def errors(self) -> dict[int, Exception]:
        """Errors by rank, of those that failed, in the order of the dimensions; empty if none did."""
        self._look()
        return dict(self._errors)

    def outcomes(self) -> Iterator[tuple[Point, T | Failed]]:
        """Every place with its value or `Failed`, in the order of the dimensions."""
        self._look()
        for point in self._region.points():
            rank = point.rank
            yield point, self._values[rank] if rank in self._values else Failed(self._errors[rank])

    def raise_for_errors(self) -> None:
        """Raises MeshError: ranks_failed: if a rank failed. Nothing otherwise."""
        if self._errors:
            self._look()
            raise mesh_error(self._errors, len(self))

    def values(self) -> list[T]:
        """Every rank's value, in the order of the dimensions. Raises MeshError if one has none."""
        self.raise_for_errors()
        return list(self._values.values())

    def items(self) -> Iterator[tuple[Point, T]]:
        """Every place (a mapping of its coordinates, with `rank`) and its value.

        Raises:
            MeshError: a rank has no value; raised by the call, before the first is given.
        """
        self.raise_for_errors()
        return zip(self._region.points(), self._values.values(), strict=True)

    def __iter__(self) -> Iterator[tuple[Point, T]]:
        return self.items()

    def item(self, /, **coordinates: SupportsIndex) -> T:
        """The value at one coordinate for every dimension; `item()` where there is one rank in all.

        Raises:
            InvalidArgument: a dimension is missing or unknown. NotFound: a coordinate is out of range.
            Exception: that rank's own error.
        """
        if not coordinates and len(self) == 1:
            return self[0]
        return self._at(self._region.rank(**coordinates))

    def __getitem__(self, position: SupportsIndex) -> T:
        """The value at a place of `ranks`, as that of a list: `values()[position]`, but for one rank.

        Raises:
            NotFound: rank_not_found: no such place. Exception: that rank's own error.
        """
        at = whole("position", position)
        if not -len(self) <= at < len(self):
            raise NotFound(
                "rank_not_found",
                f"no place {at}; there are {len(self)}, for {_named(self._region.ranks)}",
                "Count places from 0, or name coordinates: item(gpus=0).",
            )
        return self._at(self._region.ranks[at])

    def _at(self, rank: int) -> T:
        if rank in self._errors:
            self._look()
            # Without this each raise would lengthen its traceback, and keep the frames in it alive.
            raise self._errors[rank].with_traceback(None)
        return self._values[rank]

    def map(self, function: Callable[[T], U]) -> ValueMesh[U]:
        """The same mesh with a function of each value; errors stay. Raises what the function raises."""
        values = {rank: function(value) for rank, value in self._values.items()}
        return ValueMesh(self._region, values, self._errors, unseen=self._unseen)


def mesh_error(errors: Mapping[int, Exception], total: int) -> MeshError:
    """Says how many failed, and each cause once with its ranks, that of the first rank first."""
    ranks_by: dict[tuple[str, str], list[int]] = {}
    for rank, error in errors.items():
        ranks_by.setdefault((_cause(error), _place(error)), []).append(rank)
    causes = [
        f"{cause} ({_named(ranks)}{place})" for (cause, place), ranks in list(ranks_by.items())[:_CAUSES]
    ]
    if len(ranks_by) > _CAUSES:
        causes.append(f"{len(ranks_by) - _CAUSES} more causes")
    ranks = "rank" if total == 1 else "ranks"
    cause = f"{len(errors)} of {total} {ranks} failed: {'; '.join(causes)}"
    return MeshError("ranks_failed", cause, _STEP, dict(errors))


def _cause(error: Exception) -> str:
    """An error in a line: the same for ranks that failed alike."""
    if isinstance(error, ActorError):
        return _clipped(error.raised, _CAUSE_LENGTH)
    if isinstance(error, MilkweedError):
        return _clipped(f"{error.code}: {error.cause}", _CAUSE_LENGTH)
    try:
        words = str(error)
    except Exception:  # a user's own __str__
        words = ""
    name = type(error).__name__
    return _clipped(f"{name}: {words}" if words else name, _CAUSE_LENGTH)


def _place(error: Exception) -> str:
    """Where an endpoint raised it; not behind the cause itself, whose last words are what to do."""
    return f", at {error.place}" if isinstance(error, ActorError) and error.place else ""


def _named(ranks: Collection[int]) -> str:
    text = _clipped(format_ranks(ranks), _RANKS_LENGTH)
    return f"rank{'s' if len(ranks) != 1 else ''} {text}"


def _clipped(text: str, length: int) -> str:
    """The first line, cut to a length."""
    line, *more = text.splitlines() or [""]
    return f"{line[: length - 3]}..." if more or len(line) > length else line
