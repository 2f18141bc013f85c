"""Who takes a buffer from whom, as a pure state machine: `step(chain, event) -> (chain, actions)`.

Members are numbered as their buffers were given; `SOURCE` is the buffer that all are to have. Hosts follow
each other in the order of their first members: the first member of a host takes from that of the host before,
the others of a host from its first; those of the source's own host take from the source. Who takes is always
behind whom it takes from, so that nobody waits in a circle.

A member goes to the end of the order when others would wait for it: when it is ready late, when it is silent,
and with its whole host when its link is slower than those before and behind it. One that could not take from
another is not told to do so again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ...errors import MilkweedError, Unavailable

__all__ = [
    "SOURCE",
    "Begin",
    "Chain",
    "Cut",
    "Event",
    "GivenUp",
    "Have",
    "Heard",
    "Member",
    "Out",
    "Ready",
    "Silent",
    "Take",
    "Whole",
    "begin",
    "step",
]

SOURCE = -1
Phase = Literal["opening", "taking", "whole", "failed"]

# Nobody else can have what its owner has let go of.
_SOURCE_GONE = ("buffer_dropped", "buffer_owner_lost", "wrong_key", "access_refused", "out_of_range")
_REPORTS = 4
_LEAST_BEHIND = 16


@dataclass(frozen=True, slots=True)
class Member:
    """`upstream` is whom it takes from; `apart` are those whom it cannot reach; `reports` are its last ones
    since it takes from there; `blamed`: one that took from it was too slow.
    """

    host: int
    phase: Phase = "opening"
    upstream: int | None = None
    have: int = 0
    silent: bool = False
    given_up: bool = False
    apart: frozenset[int] = frozenset()
    reports: tuple[int, ...] = ()
    blamed: bool = False
    error: MilkweedError | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """`order` is that of the members, `source_host` that of the source; `lost`: why the source is no more.

    `best`: how many pieces one gained from another host in so many reports; `sunk`: hosts that were moved.
    """

    members: tuple[Member, ...]
    order: tuple[int, ...]
    source_host: int
    pieces: int
    begun: bool = False
    best: int = 0
    sunk: frozenset[int] = frozenset()
    lost: MilkweedError | None = None

    @property
    def over(self) -> bool:
        """Each member has all of it, or an error."""
        return all(member.phase in ("whole", "failed") for member in self.members)

    @property
    def all_answered(self) -> bool:
        """Each member is ready or out."""
        return all(member.phase != "opening" for member in self.members)


@dataclass(frozen=True, slots=True)
class Ready:
    """It can be told whom to take from, and can be taken from."""

    member: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Those that are not ready now are not waited for."""


@dataclass(frozen=True, slots=True)
class Have:
    """So many pieces."""

    member: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Whole:
    member: int


@dataclass(frozen=True, slots=True)
class Cut:
    """It cannot take from `upstream` any more."""

    member: int
    upstream: int
    error: MilkweedError


@dataclass(frozen=True, slots=True)
class Out:
    """It takes no part any more."""

    member: int
    error: MilkweedError


@dataclass(frozen=True, slots=True)
class Silent:
    member: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It has been silent for so long that nobody waits for it alone."""

    member: int
    error: MilkweedError


@dataclass(frozen=True, slots=True)
class Heard:
    """It is silent no more."""

    member: int


Event: TypeAlias = Ready | Begin | Have | Whole | Cut | Out | Silent | GivenUp | Heard


@dataclass(frozen=True, slots=True)
class Take:
    """From now on `member` takes from `upstream` alone."""

    member: int
    upstream: int


def begin(hosts: Iterable[int], source_host: int, pieces: int) -> Chain:
    """`hosts` of the members, and of the source, as numbers that are equal for one host."""
    members = tuple(Member(host) for host in hosts)
    ranks: dict[int, int] = {source_host: -1}
    for member in members:
        ranks.setdefault(member.host, len(ranks))
    order = sorted(range(len(members)), key=lambda at: ranks[members[at].host])
    return Chain(members, tuple(order), source_host, pieces)


def step(chain: Chain, event: Event) -> tuple[Chain, tuple[Take, ...]]:
    """What comes late, of a member that has failed, changes nothing."""
    if isinstance(event, Begin):
        return _arranged(replace(chain, begun=True))
    if chain.members[event.member].phase == "failed":
        return chain, ()
    return _arranged(_taken_in(chain, event, event.member))


def _taken_in(chain: Chain, event: Event, at: int) -> Chain:
    member = chain.members[at]
    match event:
        case Ready():
            chain = _with(chain, at, replace(member, phase="taking"))
            return _behind_all(chain, (at,)) if chain.begun else chain
        case Have(pieces=pieces):
            return _reported(chain, at, pieces)
        case Whole():
            return _with(chain, at, replace(member, phase="whole", have=chain.pieces))
        case Cut(upstream=upstream, error=error):
            return _cut(chain, at, upstream, error)
        case Out(error=error):
            return _with(chain, at, _failed(member, error))
        case Silent():
            return _behind_all(_with(chain, at, replace(member, silent=True)), (at,))
        case GivenUp(error=error):
            return _with(chain, at, replace(member, given_up=True, error=error))
        case Heard():
            return _with(chain, at, replace(member, silent=False, given_up=False, error=None))
    return chain


def _cut(chain: Chain, at: int, upstream: int, error: MilkweedError) -> Chain:
    member = chain.members[at]
    if upstream == SOURCE and error.code in _SOURCE_GONE:
        chain = replace(chain, lost=chain.lost or error)
    if member.phase != "taking" or member.upstream != upstream:
        return chain
    cut = replace(member, upstream=None, apart=member.apart | {upstream}, error=error)
    return _with(chain, at, cut)


def _with(chain: Chain, at: int, member: Member) -> Chain:
    return replace(chain, members=(*chain.members[:at], member, *chain.members[at + 1 :]))


def _failed(member: Member, error: MilkweedError) -> Member:
    return replace(member, phase="failed", upstream=None, error=error)


def _behind_all(chain: Chain, last: Iterable[int]) -> Chain:
    moved = set(last)
    ahead = [at for at in chain.order if at not in moved]
    return replace(chain, order=(*ahead, *(at for at in chain.order if at in moved)))


def _reported(chain: Chain, at: int, pieces: int) -> Chain:
    member = chain.members[at]
    reports = (*member.reports, pieces)[-_REPORTS:]
    chain = _with(chain, at, replace(member, have=pieces, reports=reports))
    if member.upstream is None or _host(chain, member.upstream) == member.host:
        return chain
    if len(reports) < _REPORTS:
        return chain
    gained = reports[-1] - reports[0]
    chain = replace(chain, best=max(chain.best, gained))
    return _sunk(chain, at) if _holds_up(chain, at, gained) else chain


def _holds_up(chain: Chain, at: int, gained: int) -> bool:
    """Whether others wait for a member's link: it is far behind whom it takes from and comes on at less than
    half the pace that another did, and those that take from it have all that it has.
    """
    member = chain.members[at]
    below = [
        one.have
        for one in chain.members
        if one.upstream == at and one.phase == "taking" and one.host != member.host and not one.silent
    ]
    if not below or member.upstream is None:
        return False
    above = chain.pieces if member.upstream == SOURCE else chain.members[member.upstream].have
    behind = above - member.have
    is_far = behind >= max(_LEAST_BEHIND, chain.pieces // 8)
    return is_far and gained < chain.best // 2 and member.have - min(below) <= behind // 4


def _sunk(chain: Chain, at: int) -> Chain:
    """Moves the member's host behind all; that of whom it takes from, where another was moved for that too.

    Each host is moved once: what does not help is not tried for ever.
    """
    member = chain.members[at]
    above = member.upstream
    if above is not None and above != SOURCE:
        upstream = chain.members[above]
        if upstream.blamed and upstream.upstream is not None:
            return _host_behind_all(chain, upstream.host)
        chain = _with(chain, above, replace(upstream, blamed=True))
    return _host_behind_all(chain, member.host)


def _host_behind_all(chain: Chain, host: int) -> Chain:
    if host in chain.sunk:
        return chain
    chain = replace(chain, sunk=chain.sunk | {host})
    return _behind_all(chain, [at for at, member in enumerate(chain.members) if member.host == host])


def _host(chain: Chain, at: int) -> int:
    return chain.source_host if at == SOURCE else chain.members[at].host


def _arranged(chain: Chain) -> tuple[Chain, tuple[Take, ...]]:
    """Everybody has somebody to take from; who has not, has an error, unless one of the silent may help."""
    if not chain.begun:
        return chain, ()
    wanted = _upstreams(chain)
    takes = []
    for at, member in enumerate(chain.members):
        if member.phase == "taking" and at in wanted and member.upstream != wanted[at]:
            takes.append(Take(at, wanted[at]))
            chain = _with(chain, at, replace(member, upstream=wanted[at], error=None, reports=()))
    may_help = any(
        member.silent and not member.given_up and member.phase in ("taking", "whole")
        for member in chain.members
    )
    for at, member in enumerate(chain.members):
        if member.phase == "taking" and at not in wanted and not may_help:
            error = chain.lost or member.error or _nobody()
            chain = _with(chain, at, _failed(member, error))
    return _without_given_up(chain), tuple(takes)


def _without_given_up(chain: Chain) -> Chain:
    waited_for = [
        member for member in chain.members if member.phase in ("opening", "taking") and not member.given_up
    ]
    if not waited_for:
        for at, member in enumerate(chain.members):
            if member.given_up and member.phase in ("opening", "taking"):
                chain = _with(chain, at, _failed(member, member.error or _nobody()))
    return chain


def _nobody() -> Unavailable:
    return Unavailable(
        "transfer_failed", "nobody that has the buffer can be reached", "Look at the errors of the others."
    )


def _upstreams(chain: Chain) -> Mapping[int, int]:
    """Whom each member that is to take takes from; those whom nobody can serve are not in it."""
    placing = _Placing(chain)
    left = [at for at in chain.order if chain.members[at].phase in ("taking", "whole")]
    while left:
        later = [at for at in left if not placing.place(at)]
        if len(later) == len(left):
            break
        left = later
    return placing.upstreams


@dataclass(slots=True)
class _Placing:
    """Members that are served, in the order in which they were found to be."""

    chain: Chain
    upstreams: dict[int, int] = field(default_factory=dict)
    _firsts: list[int] = field(default_factory=list)
    _others: list[int] = field(default_factory=list)
    _first_of: dict[int, int] = field(default_factory=dict)

    def place(self, at: int) -> bool:
        """Whether it has all, or there is whom it can take from: then others may take from it."""
        member = self.chain.members[at]
        if member.phase != "whole":
            found = next((one for one in self._candidates(member) if one not in member.apart), None)
            if found is None:
                return False
            self.upstreams[at] = found
        if member.silent:
            return True
        if member.host == self.chain.source_host or member.host in self._first_of:
            self._others.append(at)
        else:
            self._first_of[member.host] = at
            self._firsts.append(at)
        return True

    def _candidates(self, member: Member) -> Iterable[int]:
        source = () if self.chain.lost else (SOURCE,)
        if member.host == self.chain.source_host:
            yield from source
        elif member.host in self._first_of:
            yield self._first_of[member.host]
        yield from reversed(self._firsts)
        if member.host != self.chain.source_host:
            yield from source
        yield from self._others
