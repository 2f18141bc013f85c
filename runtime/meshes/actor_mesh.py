"""Actors of one class, one a proc, called together or in part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..actor import Actor, check_arguments, endpoints_of
from ..addresses import ProcAddress, address_of
from ..errors import ActorError, InvalidArgument, MilkweedError
from ..extent import Point
from ..node import Feed, Future, node
from ..pickling import Pickled, dumps
from ..region import Region
from ..tree import Operation, Routes, check_operation, packed_operation
from .calling import Explain, Outcome, outcome_of
from .reduced import Reduced
from .sending import AnyCall, tell
from .shaped import Shaped
from .under_way import Reducing, UnderWay, begin
from .unseen import Unseen
from .value_mesh import Failed, ValueMesh, mesh_error

__all__ = ["ActorMesh", "Endpoint", "Stream"]

DEADLINE_S = 3600.0


class ActorMesh(Shaped):
    """A handle, which can be sent to other processes and called from there.

    `trainers.step` is an `Endpoint`; `trainers.slice(gpus=0)` a part. It is made by `ProcMesh.spawn`.
    """

    def __init__(
        self,
        name: str,
        actor_id: str,
        cls: type[Actor],
        region: Region,
        addresses: Sequence[ProcAddress],
        explain: Explain | None = None,
        routes: Routes | None = None,
    ) -> None:
        self.name = name
        self._actor_id = actor_id
        self._cls = cls
        self._region = region
        self._addresses = addresses
        self._held: Sequence[ProcAddress] | None = None
        self._explain = explain
        self.routes = routes or Routes()
        self._endpoints: dict[str, Endpoint] = {}

    @property
    def region(self) -> Region:
        return self._region

    @property
    def cls(self) -> type[Actor]:
        return self._cls

    @property
    def actor_id(self) -> str:
        """Names these actors in their procs."""
        return self._actor_id

    def addresses(self) -> Sequence[ProcAddress]:
        """Of the procs of the ranks held, in their order; a proc that is restarted keeps its own."""
        if self._held is None:
            self._held = [self._addresses[rank] for rank in self._region.ranks]
        return self._held

    def explain(self) -> Explain | None:
        """What tells why the rank at a position was lost, where its owner is in this process."""
        known = self._explain
        if known is None:
            return None
        ranks = self._region.ranks
        return lambda at, error, tell: known(ranks[at], error, tell)

    def _over(self, region: Region) -> ActorMesh:
        return ActorMesh(
            self.name, self._actor_id, self._cls, region, self._addresses, self._explain, self.routes
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Why a rank was lost is known where its owner is.
        return ActorMesh, (self.name, self._actor_id, self._cls, self._region, tuple(self._addresses))

    def __getattr__(self, name: str) -> Endpoint:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._endpoints.get(name)
        if found is None:
            if name not in endpoints_of(self._cls):
                check_arguments(self._cls, name, (), {})
            found = self._endpoints[name] = Endpoint(self, name)
        return found

    def __repr__(self) -> str:
        return f"ActorMesh({self.name}: {self._cls.__name__}, {self._region.described()})"


_TAKEN = {name for name in dir(ActorMesh) if not name.startswith("_")} | {"name", "routes"}


def check_actor_class(cls: Any) -> None:
    """
    Raises:
        InvalidArgument: it is no actor class, or an endpoint has a name that every mesh has itself.
    """
    if not (isinstance(cls, type) and issubclass(cls, Actor)):
        raise InvalidArgument(
            "invalid_argument", f"{cls!r} is no actor class", "Spawn a class that derives from Actor."
        )
    if taken := sorted(endpoints_of(cls) & _TAKEN):
        raise InvalidArgument(
            "invalid_argument",
            f"an endpoint of {cls.__name__} is called {taken[0]!r}, as something of every mesh is",
            f"Name it otherwise; taken are {', '.join(sorted(_TAKEN))}.",
        )


class Endpoint:
    """One endpoint of a mesh's actors. What it gives can be awaited, or waited for with `get()`.

    Arguments are checked against the signature before anything is sent. Arrays and tensors are sent from
    their own memory: do not write to them before the call has ended.
    """

    __slots__ = ("_address", "_deadline_s", "_mesh", "_name", "label")

    def __init__(self, mesh: ActorMesh, name: str, deadline_s: float | None = DEADLINE_S) -> None:
        self._mesh = mesh
        self._name = name
        self._deadline_s = deadline_s
        self._address = address_of(mesh.actor_id, name)
        self.label = f"{mesh.name}.{name}"

    def within(self, deadline_s: float | None) -> Endpoint:
        """The same endpoint with a deadline of its own for its calls, in seconds; None waits for ever."""
        return Endpoint(self._mesh, self._name, deadline_s)

    def call(self, /, *args: Any, **kwargs: Any) -> Future[ValueMesh[Any]]:
        """Calls every rank; one value or one error for each.

        Raises:
            InvalidArgument: the arguments do not fit the signature, or cannot be sent. Nothing was sent.
        """
        message = self._message(args, kwargs)
        under_way: UnderWay[ValueMesh[Any]] = UnderWay(self, self._values)
        under_way.send(message)
        return under_way

    def call_one(self, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls the only rank of this mesh; its value, or its error raised.

        Raises:
            InvalidArgument: as `call`; or this mesh has more than one rank.
        """
        if len(self._mesh) != 1:
            raise InvalidArgument(
                "invalid_argument",
                f"call_one is for one rank, and {self._mesh!r} has {len(self._mesh)}",
                "Slice it first, or use call.",
            )
        message = self._message(args, kwargs)
        under_way: UnderWay[Any] = UnderWay(self, self._only)
        under_way.send(message)
        return under_way

    def stream(self, /, *args: Any, **kwargs: Any) -> Stream:
        """Calls every rank; gives `(point, value or Failed)` as they come, to `async for` and to `for`."""
        message = self._message(args, kwargs)
        stream = Stream(self)
        stream.send(message)
        return stream

    def broadcast(self, /, *args: Any, **kwargs: Any) -> Future[None]:
        """Tells every rank, with no answer; what it gives, if awaited, waits until the messages have left.

        An exception there is a failure of that actor, told to the owner of its mesh.

        Raises:
            Unavailable: mailbox_full, so much is unsent that no more is taken; proc_lost.
        """
        mesh, message = self._mesh, self._message(args, kwargs)
        return tell(node(), self.label, mesh.addresses(), mesh.ranks, mesh.routes, message)

    def reduce(self, operation: Operation, /, *args: Any, **kwargs: Any) -> Future[Reduced[Any]]:
        """Calls every rank; the values as one, combined on the way.

        Args:
            operation: `sum`, `min`, `max` or `mean` (arrays element by element), or a function of two values
                that can be sent. It is to be associative; where the ranks of a host do not follow each other,
                commutative too.

        Raises:
            InvalidArgument: as `call`; no such operation.
        """
        check_operation(operation)
        message = self._message(args, kwargs)
        packed = packed_operation(operation)
        under_way = Reducing(self, operation)
        under_way.send_reduction(message, packed)
        return under_way

    @property
    def mesh(self) -> ActorMesh:
        return self._mesh

    @property
    def deadline_s(self) -> float | None:
        return self._deadline_s

    def where(self, rank: int) -> str:
        """Names one rank's endpoint in errors."""
        return f"{self.label} on rank {rank}"

    def _message(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pickled:
        check_arguments(self._mesh.cls, self._name, args, kwargs)
        body, buffers = dumps((args, kwargs))
        return self._address + body, buffers

    def _values(self, outcomes: Sequence[Outcome]) -> ValueMesh[Any]:
        region = self._mesh.region
        values: dict[int, Any] = {}
        errors: dict[int, Exception] = {}
        for rank, outcome in zip(region.ranks, outcomes, strict=True):
            try:
                values[rank] = outcome_of(outcome, partial(self.where, rank))
            except MilkweedError as error:
                errors[rank] = error.with_traceback(None)  # of frames that are ours alone
        # What else goes wrong is a death, which the owner hears of, or an end that was wanted.
        if not any(isinstance(error, ActorError) for error in errors.values()):
            return ValueMesh(region, values, errors)
        unseen = Unseen(partial(_unseen_words, self.label, errors, len(region.ranks)))
        return ValueMesh(region, values, errors, unseen=unseen)

    def _only(self, outcomes: Sequence[Outcome]) -> Any:
        return outcome_of(outcomes[0], partial(self.where, self._mesh.region.ranks[0]))


class Stream:
    """`(point, value or Failed)` in the order in which they come, for one reader, async or not.

    A reader that leaves early leaves the calls to go on; `cancel` ends them. The deadline is that of the
    whole: ranks that are late have an error for it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._feed: Feed[tuple[int, Outcome]] = Feed()
        self._left = len(endpoint.mesh)
        self._calls: list[AnyCall] = []

    def send(self, message: Pickled) -> None:
        loop, deadline_s = node().loop, self._endpoint.deadline_s
        self._calls = begin(self._endpoint, message, self._came, flush_s=0.0)
        if deadline_s is not None:
            for call in self._calls:
                loop.call_soon_threadsafe(loop.call_later, deadline_s, call.expire, deadline_s)

    def cancel(self) -> None:
        """Ends the calls that have not answered."""
        for call in self._calls:
            call.cancel()

    def __aiter__(self) -> AsyncIterator[tuple[Point, Any | Failed]]:
        return self

    async def __anext__(self) -> tuple[Point, Any | Failed]:
        return self._told(*await anext(self._feed))

    def __iter__(self) -> Iterator[tuple[Point, Any | Failed]]:
        return self

    def __next__(self) -> tuple[Point, Any | Failed]:
        return self._told(*next(self._feed))

    def _came(self, at: int, outcome: Outcome) -> None:
        self._feed.put((at, outcome))
        self._left -= 1
        if not self._left:
            self._feed.close()

    def _told(self, at: int, outcome: Outcome) -> tuple[Point, Any | Failed]:
        region = self._endpoint.mesh.region
        rank = region.ranks[at]
        try:
            return region.point(rank), outcome_of(outcome, partial(self._endpoint.where, rank))
        except MilkweedError as error:
            return region.point(rank), Failed(error)


def _unseen_words(label: str, errors: Mapping[int, Exception], total: int) -> str:
    cause = mesh_error(errors, total).cause
    return f"nobody looked at what {label}.call() gave: {cause}. values() raises that."
