"""Calls and tells of many ranks over a tree of relays, as their caller sees them.

Where a relay fails, or cannot answer for a rank, that rank is asked directly, under the same number: it runs
nothing twice, and answers with what its first run gives.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ..addresses import ProcAddress
from ..call import Connection
from ..errors import Conflict, MilkweedError, Unavailable
from ..node import Future, Node
from ..pickling import Pickled, loads
from ..tree import Answer, Branch, Header, Plan, Status, Trees, numbered, unpack
from ..wire import Kind, WireFrame
from .calling import ANSWERS_S, Explain, MeshCall, Outcome, settled_as

__all__ = ["TreeCall", "TreeTell"]

OnCombined = Callable[[Sequence[int], Any], None]
"""(positions, value): one value of several ranks that a relay has combined."""

_LOST = ("connection_lost", "proc_lost")


class _TreeSend:
    """What is sent to the relays of a plan, and who of each branch is settled."""

    def __init__(self, node: Node, plan: Plan, header: Header, message: Pickled) -> None:
        self._node = node
        self._trees = node.part(Trees, Trees)
        self._plan = plan
        self._header = header
        self._message = message
        self._missing = len(plan.positions)
        self._lock = threading.Lock()
        self._settled: set[int] = set()
        self._branches: dict[int, tuple[Connection, int]] = {}

    def _send(self) -> None:
        for at, branch in enumerate(self._plan.branches):
            try:
                line = self._trees.line(branch.socket)
                call = line.send(self._header, branch, self._message, partial(self._heard, at))
            except Unavailable:
                self._branch_failed(branch)
                continue
            self._branches[at] = (line.connection, call)

    def _heard(self, at: int, reply: WireFrame | MilkweedError) -> None:
        """On the node's loop."""
        branch = self._plan.branches[at]
        if isinstance(reply, MilkweedError):
            self._branches.pop(at, None)
            self._branch_failed(branch)
            return
        if reply.body:
            self._took(unpack(reply.body, reply.buffers))
        if reply.kind is not Kind.PART:
            self._branches.pop(at, None)
            self._branch_done(branch)

    def _branch_failed(self, branch: Branch) -> None:
        self._trees.avoid(branch.socket)
        self._ask([position for position in branch.positions() if position not in self._settled])

    def _branch_done(self, branch: Branch) -> None: ...

    def _took(self, answers: Iterable[Answer]) -> None:
        to_ask = []
        for one in answers:
            if one.status is Status.ASK:
                if one.body:
                    self._trees.avoid(self._plan.sockets[one.position])
                if one.position not in self._settled:
                    to_ask.append(one.position)
            else:
                self._took_one(one)
        if to_ask:
            self._ask(to_ask)

    def _took_one(self, answer: Answer) -> None: ...

    def _ask(self, positions: Sequence[int]) -> None:
        raise NotImplementedError

    def _again(self, position: int) -> Pickled:
        """The message as it goes directly."""
        envelope = replace(self._header.envelope(position), now=time.monotonic_ns())
        return numbered(envelope, self._message)

    def _settle(self, position: int) -> bool:
        """Whether it was not settled yet."""
        with self._lock:
            if position in self._settled:
                return False
            self._settled.add(position)
            self._missing -= 1
            done = not self._missing
        if done:
            self._trees.finished(self._header.number)
            self._all_settled()
        return True

    def _all_settled(self) -> None: ...


class TreeCall(_TreeSend):
    """As `MeshCall`; with `operation` (a pickled reduction), relays combine values: `on_combined` has those.

    Answers come together, `flush_s` after the first that is to be sent on, or when a relay has all.
    """

    def __init__(
        self,
        node: Node,
        label: str,
        addresses: Sequence[ProcAddress],
        plan: Plan,
        message: Pickled,
        on_outcome: Callable[[int, Outcome], None],
        explain: Explain | None = None,
        *,
        flush_s: float = 0.0,
        operation: bytes = b"",
        on_combined: OnCombined | None = None,
    ) -> None:
        header = node.part(Trees, Trees).header(
            "reduce" if operation else "call", plan, flush_s=flush_s, operation=operation
        )
        super().__init__(node, plan, header, message)
        self._label = label
        self._addresses = addresses
        self._on_outcome = on_outcome
        self._explain = explain
        self._on_combined = on_combined
        self._why = ""
        self._end_one: Callable[[MeshCall], None] = MeshCall.cancel
        self._all = asyncio.Event()
        self._direct: list[MeshCall] = []
        self._asked_of: set[int] = set()
        self._send()

    def expire(self, deadline_s: float) -> None:
        """The deadline has passed."""
        self._end(f"did not end within {deadline_s:g} s", lambda call: call.expire(deadline_s))

    def cancel(self) -> None:
        self._end("was cancelled", MeshCall.cancel)

    def unanswered(self) -> tuple[str, ...]:
        """The procs that have not answered; any thread."""
        return tuple(self._addresses[at].proc for at in self._plan.positions if at not in self._settled)

    def _end(self, why: str, end_one: Callable[[MeshCall], None]) -> None:
        if not self._why:
            self._why, self._end_one = why, end_one
            self._node.start(self._end_rest())

    async def _end_rest(self) -> None:
        for connection, call in tuple(self._branches.values()):
            connection.send_cancel(call)
        for one in tuple(self._direct):
            self._end_one(one)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERS_S):
                await self._all.wait()
        # Relays may be in no state to pass on a cancel, or an answer.
        self._ask([position for position in self._plan.positions if position not in self._settled])

    def _ask(self, positions: Sequence[int]) -> None:
        with self._lock:
            positions = [position for position in positions if position not in self._asked_of]
            self._asked_of.update(positions)
        if not positions:
            return
        try:
            call = self._directly(positions)
        except Conflict as error:  # the program ends
            for position in positions:
                self._asked(position, error)
            return
        self._direct.append(call)
        if self._why:
            self._end_one(call)

    def _directly(self, positions: Sequence[int]) -> MeshCall:
        explain = self._explain
        return MeshCall(
            self._node,
            self._label,
            [self._addresses[position] for position in positions],
            self._message,
            lambda at, outcome: self._asked(positions[at], outcome),
            None if explain is None else lambda at, error, tell: explain(positions[at], error, tell),
            each=[self._again(position) for position in positions],
        )

    def _asked(self, position: int, outcome: Outcome) -> None:
        if isinstance(outcome, WireFrame):
            self._trees.arrived(self._header.number, self._plan.sockets[position])
        elif outcome.code in _LOST:
            self._trees.avoid(self._plan.sockets[position])
        if self._settle(position):
            self._on_outcome(position, outcome)

    def _took_one(self, answer: Answer) -> None:
        if answer.status is Status.COMBINED:
            self._took_combined(answer)
            return
        self._trees.arrived(self._header.number, self._plan.sockets[answer.position])
        if self._settle(answer.position):
            outcome: Outcome = answer.frame
            if self._why and answer.status is Status.ERROR:
                outcome = settled_as(answer.frame, self._label, self._why)
            self._on_outcome(answer.position, outcome)

    def _took_combined(self, answer: Answer) -> None:
        positions, value = loads(answer.body, answer.buffers)
        if any(position in self._settled for position in positions):
            return
        for position in positions:
            self._trees.arrived(self._header.number, self._plan.sockets[position])
        if self._on_combined is not None:
            self._on_combined(positions, value)
        for position in positions:
            self._settle(position)

    def _all_settled(self) -> None:
        if self._why:
            self._node.loop.call_soon_threadsafe(self._all.set)


class TreeTell(_TreeSend):
    """A message without answers; `sent` is done when it has left for all ranks, or raises why for one not."""

    def __init__(self, node: Node, addresses: Sequence[ProcAddress], plan: Plan, message: Pickled) -> None:
        super().__init__(node, plan, node.part(Trees, Trees).header("tell", plan), message)
        self.sent: Future[None] = Future()
        self._addresses = addresses
        self._error: MilkweedError | None = None
        self._send()

    def _ask(self, positions: Sequence[int]) -> None:
        for position in positions:
            address = self._addresses[position]
            try:
                connection = self._node.connection(address.socket, f"proc {address.proc}")
                connection.send_tell(self._again(position))
            except MilkweedError as error:
                self._trees.avoid(address.socket)
                self._error = self._error or error
            self._settle(position)

    def _branch_done(self, branch: Branch) -> None:
        for position in branch.positions():
            self._settle(position)

    def _all_settled(self) -> None:
        self.sent.settle(self._result)

    def _result(self) -> None:
        if self._error is not None:
            raise self._error
