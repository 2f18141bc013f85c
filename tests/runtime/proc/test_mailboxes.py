"""Order and back-pressure of one sender's messages, without a process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milkweed.runtime.proc.mailboxes import Sender

MANY = 1024
FEW = 256
MIB = 1024 * 1024


class Line:
    """A connection: whether it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def pause(self) -> None:
        self.is_read = False

    def resume(self) -> None:
        self.is_read = True


def message(actor: str = "trainers", size: int = 1) -> Any:
    return SimpleNamespace(actor=SimpleNamespace(where=SimpleNamespace(actor_id=actor)), size=size)


def join(sender: Sender, line: Any) -> None:
    sender.connected(line)


def sender_with(*lines: Line) -> Sender:
    sender = Sender("node")
    for line in lines:
        join(sender, line)
    return sender


def test_later_messages_to_an_actor_wait_until_the_sync_one_ahead_has_begun_and_go_in_order() -> None:
    sender = sender_with()
    first, second, third = message(), message(), message()
    assert not sender.is_behind(first)
    sender.put_ahead(first)
    assert sender.is_behind(second)
    assert sender.is_behind(third)
    assert not sender.is_behind(message("loaders"))
    box = sender.begun(first)
    assert box is not None
    assert sender.following(box) is second
    sender.put_ahead(second)
    assert sender.following(box) is None
    assert sender.begun(second) is box
    assert sender.following(box) is third
    assert sender.waiting == 0


def test_a_message_that_comes_while_others_wait_goes_behind_them_though_none_is_ahead() -> None:
    sender = sender_with()
    first, second, third = message(), message(), message()
    sender.put_ahead(first)
    assert sender.is_behind(second)
    box = sender.begun(first)
    assert box is not None
    assert sender.is_behind(third)
    assert [sender.following(box), sender.following(box)] == [second, third]


def test_that_a_call_has_begun_is_heard_once() -> None:
    sender = sender_with()
    first, second = message(), message()
    sender.put_ahead(first)
    assert sender.is_behind(second)
    assert sender.begun(first) is not None
    assert sender.begun(first) is None
    assert sender.waiting == 1


def test_all_connections_of_a_sender_are_not_read_from_many_messages_on_until_few_are_left() -> None:
    own, relayed = Line(), Line()
    sender = sender_with(own, relayed)
    tells = [message() for _ in range(MANY)]
    for tell in tells[:-1]:
        sender.hold(tell)
    assert own.is_read
    sender.hold(tells[-1])
    assert not own.is_read
    assert not relayed.is_read
    late = Line()
    join(sender, late)
    assert not late.is_read
    for tell in tells[: MANY - FEW - 1]:
        sender.released(tell)
    assert not own.is_read
    sender.released(tells[MANY - FEW - 1])
    assert [line.is_read for line in (own, relayed, late)] == [True] * 3


def test_large_messages_stop_a_sender_before_they_are_many() -> None:
    line = Line()
    sender = sender_with(line)
    large = [message(size=128 * MIB) for _ in range(2)]
    sender.put_ahead(large[0])
    assert line.is_read
    assert sender.is_behind(large[1])
    assert not line.is_read
    box = sender.begun(large[0])
    assert box is not None
    assert sender.following(box) is large[1]
    sender.resume_if_few()
    assert line.is_read


def test_a_mailbox_of_an_actor_that_is_no_more_stays_while_something_is_in_it() -> None:
    sender = sender_with()
    first, second = message(), message()
    sender.put_ahead(first)
    assert sender.is_behind(second)
    sender.forget("trainers")
    box = sender.begun(first)
    assert box is not None
    assert sender.following(box) is second
    sender.forget("trainers")
    assert not sender.is_behind(message())
