"""What a call gives while it is under way: a future of the outcomes of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import MilkweedError
from ..node import Future, node
from ..pickling import Pickled
from ..records import CallWait
from ..tree import Operation, combine, finished
from .calling import MeshCall, Outcome, outcome_of
from .reduced import Reduced
from .sending import AnyCall, begin_call

if TYPE_CHECKING:
    from .actor_mesh import Endpoint

__all__ = ["Reducing", "UnderWay", "begin"]

T = TypeVar("T")


def begin(
    endpoint: Endpoint, message: Pickled, on_outcome: Callable[[int, Outcome], None], **how: Any
) -> list[AnyCall]:
    """Sends a call to all ranks of the endpoint's mesh; `how` as `begin_call` has it."""
    mesh, here = endpoint.mesh, node()
    addresses = mesh.addresses()
    if len(addresses) == 1:
        return [MeshCall(here, endpoint.label, addresses, message, on_outcome, mesh.explain())]
    return begin_call(
        here, endpoint.label, addresses, mesh.ranks, mesh.routes, message, on_outcome, mesh.explain(), **how
    )


class UnderWay(Future[T]):
    """A call on all ranks: `collect` makes its value of their outcomes, in the waiter's thread."""

    __slots__ = ("_calls", "_collect", "_endpoint", "_missing", "_outcomes")

    def __init__(self, endpoint: Endpoint, collect: Callable[[Sequence[Outcome]], T]) -> None:
        super().__init__(deadline_s=endpoint.deadline_s)
        self._endpoint = endpoint
        self._collect = collect
        self._outcomes: list[Any] = [None] * len(endpoint.mesh)
        self._missing = len(self._outcomes)
        self._calls: Sequence[AnyCall] = ()

    def send(self, message: Pickled) -> None:
        calls = begin(self._endpoint, message, self._came)
        if not self._done:
            self._calls = calls

    def waits_for(self) -> CallWait:
        procs = tuple(name for call in self._calls for name in call.unanswered())
        return CallWait(self._endpoint.label, procs)

    def _came(self, at: int, outcome: Outcome) -> None:
        with self._lock:  # a rank that cannot be reached is told of in the caller's thread
            self._outcomes[at] = outcome
            self._missing -= 1
            done = self._missing == 0
        if done:
            self._finish()

    def _finish(self) -> None:
        # Without cycles the memory of a call is free as soon as nobody waits for it.
        self._calls = ()
        self.settle(partial(self._collect, self._outcomes))

    def _on_deadline(self) -> None:
        if self._endpoint.deadline_s is not None:
            for call in self._calls:
                call.expire(self._endpoint.deadline_s)

    def _on_cancel(self) -> None:
        for call in self._calls:
            call.cancel()


class Reducing(UnderWay[Reduced[Any]]):
    """A reduction: relays give values of several ranks, the others one each."""

    __slots__ = ("_operation", "_parts")

    def __init__(self, endpoint: Endpoint, operation: Operation) -> None:
        super().__init__(endpoint, self._reduced)
        self._operation = operation
        self._parts: list[tuple[int, int, Any]] = []

    def send_reduction(self, message: Pickled, operation: bytes) -> None:
        """`operation` is the same, packed."""
        calls = begin(
            self._endpoint, message, self._came, operation=operation, on_combined=self._came_combined
        )
        if not self._done:
            self._calls = calls

    def _came_combined(self, positions: Sequence[int], value: Any) -> None:
        with self._lock:
            self._parts.append((positions[0], len(positions), value))
            self._missing -= len(positions)
            done = self._missing == 0
        if done:
            self._finish()

    def _reduced(self, outcomes: Sequence[Outcome | None]) -> Reduced[Any]:
        region = self._endpoint.mesh.region
        parts = list(self._parts)
        errors: dict[int, Exception] = {}
        for at, (rank, outcome) in enumerate(zip(region.ranks, outcomes, strict=True)):
            if outcome is None:
                continue  # in a part
            try:
                parts.append((at, 1, outcome_of(outcome, partial(self._endpoint.where, rank))))
            except MilkweedError as error:
                errors[rank] = error
        if not parts:
            return Reduced(region, None, errors)
        parts.sort(key=lambda part: part[0])
        total = combine(self._operation, [value for _, _, value in parts])
        count = sum(count for _, count, _ in parts)
        return Reduced(region, finished(self._operation, total, count), errors)
