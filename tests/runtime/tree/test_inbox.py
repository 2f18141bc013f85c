from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from milkweed.runtime.pickling import Pickled, loads
from milkweed.runtime.tree import Inbox, Route
from milkweed.runtime.tree.inbox import INLINE
from milkweed.runtime.wire import Kind

OUTCOME: Pickled = (b"outcome", [])


@dataclass(eq=False)
class Line:
    """Stands for a connection: what was replied over it."""

    peer_hello: dict[str, Any]
    replies: list[tuple[Kind, int, bytes]] = field(default_factory=list)

    def reply(self, kind: Kind, call: int, pickled: Pickled) -> None:
        self.replies.append((kind, call, pickled[0]))


@dataclass
class Call:
    number: int
    routes: list[Route]
    is_tell: bool = False


def relay() -> Any:
    return Line({"id": "relay>caller", "for": "caller"})


def direct() -> Any:
    return Line({"id": "caller"})


def test_what_comes_again_while_its_first_run_is_under_way_awaits_that_one() -> None:
    inbox, first, second = Inbox(), relay(), direct()
    call = Call(7, [(first, 1)])
    inbox.add(call)
    assert inbox.again(7, (second, 9)) is call
    assert inbox.finished(call, Kind.RESULT, OUTCOME) == ((first, 1), (second, 9))


def test_what_comes_again_after_its_first_run_has_that_ones_outcome() -> None:
    inbox, again = Inbox(), direct()
    call = Call(7, [(relay(), 1)])
    inbox.add(call)
    inbox.finished(call, Kind.ERROR, OUTCOME)
    assert inbox.again(7, (again, 9)) is None
    assert again.replies == [(Kind.ERROR, 9, b"outcome")]


def test_a_large_outcome_is_kept_back_from_relays_until_it_is_asked_for_directly() -> None:
    inbox, relayed, asking = Inbox(), relay(), direct()
    large = bytes(INLINE + 1), []
    call = Call(7, [(relay(), 1)])
    inbox.add(call)
    inbox.finished(call, Kind.RESULT, large)
    for number in range(8, 12):
        inbox.refused(number, Kind.RESULT, large)
    inbox.again(7, (relayed, 2))
    inbox.again(7, (asking, 3))
    assert relayed.replies == [(Kind.KEPT, 2, b"")]
    assert asking.replies == [(Kind.RESULT, 3, large[0])]


def test_an_outcome_is_forgotten_once_its_sender_has_it() -> None:
    for forget in ("it says so", "it had it directly"):
        inbox, again = Inbox(), direct()
        call = Call(7, [(direct() if forget == "it had it directly" else relay(), 1)])
        inbox.add(call)
        inbox.finished(call, Kind.RESULT, OUTCOME)
        if forget == "it says so":
            inbox.done(8)
        inbox.again(7, (again, 9))
        ((kind, _, body),) = again.replies
        assert (kind, loads(body).code) == (Kind.ERROR, "outcome_lost")


def test_of_very_many_outcomes_that_nobody_confirms_the_oldest_go() -> None:
    inbox, old, new = Inbox(), relay(), relay()
    for number in range(1, 5000):
        inbox.refused(number, Kind.RESULT, OUTCOME)
    inbox.again(1, (old, 1))
    inbox.again(4999, (new, 1))
    assert old.replies[0][0] is Kind.ERROR
    assert new.replies == [(Kind.RESULT, 1, b"outcome")]
