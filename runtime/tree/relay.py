"""A proc as a relay: it passes messages on to procs of its host and to relays below, and gathers the answers.

Messages are passed on as they came, and answers too: only the values of a reduction are unpickled here. For
each connection from above there are connections of its own below, so that messages stay those of their
sender, and none of them is read while what was read cannot be passed on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial
from typing import Any

from ..call import Connection
from ..errors import MilkweedError, ProtocolError
from ..node import Node
from ..pickling import Pickled, dumps, loads
from ..wire import SAME_VERSION, Kind, WireFrame
from .combine import combine, read_operation
from .envelope import Answer, Header, Status, numbered, pack, read_header, unpack
from .line import BEAT_S, TreeLine, open_line
from .routing import Branch

__all__ = ["Relay"]

logger = logging.getLogger(__name__)


class Relay:
    """Of one process, on its loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sources: dict[Connection, _Source] = {}

    def called(self, connection: Connection, frame: WireFrame, rest: memoryview) -> None:
        source = self._sources.get(connection)
        if source is None:
            source = self._sources[connection] = _Source(self._node, connection)
        slot, branch, header, message = read_header(rest)
        source.pass_on(frame.call, header, source.branch(slot, branch), (bytes(message), list(frame.buffers)))

    def cancelled(self, connection: Connection, call: int) -> None:
        source = self._sources.get(connection)
        if source is not None and (passing := source.passing.get(call)) is not None:
            passing.cancel()

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's connections."""
        for connection in self._sources:
            connection.abandon()

    def ended(self, connection: Connection) -> None:
        """What is under way below is left to those who run it: somebody may ask them for it directly."""
        source = self._sources.pop(connection, None)
        if source is not None:
            source.close()


class _Source:
    """One connection from above, and those below that carry its messages on."""

    def __init__(self, node: Node, connection: Connection) -> None:
        self.node = node
        self.connection = connection
        self.passing: dict[int, _Passing] = {}
        self._origin = str(connection.peer_hello.get("for", ""))
        self._branches: dict[int, Branch] = {}
        self._leaves: dict[str, Connection] = {}
        self._lines: dict[str, TreeLine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._beat: asyncio.TimerHandle | None = None
        self._paused = False

    def branch(self, slot: int, branch: Branch | None) -> Branch:
        if branch is not None:
            self._branches[slot] = branch
        found = self._branches.get(slot)
        if found is None:
            raise ProtocolError("protocol_error", f"no branch was ever in slot {slot}", SAME_VERSION)
        return found

    def pass_on(self, call: int, header: Header, branch: Branch, message: Pickled) -> None:
        if call in self.passing:
            raise ProtocolError("protocol_error", f"two calls of the number {call}", SAME_VERSION)
        passing = self.passing[call] = _Passing(self, call, header, branch)
        passing.send(message)
        if self._beat is None:
            self._beat = self.node.loop.call_later(BEAT_S, self._tell_alive)
        self._hold_back()

    def leaf(self, socket: str) -> Connection:
        """Raises Unavailable: connection_lost."""
        found = self._leaves.get(socket)
        if found is None or found.is_closed:
            found = self._leaves[socket] = open_line(self.node, self._origin, socket)
        return found

    def line(self, socket: str) -> TreeLine:
        """Raises Unavailable: connection_lost."""
        found = self._lines.get(socket)
        if found is None or found.connection.is_closed:
            found = self._lines[socket] = TreeLine(self.node, self._origin, socket)
        return found

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.node.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        for task in self._tasks:
            task.cancel()
        for passing in tuple(self.passing.values()):
            passing.leave()
        for connection in self._below():
            connection.close()

    def _below(self) -> list[Connection]:
        return [*self._leaves.values(), *(line.connection for line in self._lines.values())]

    def _tell_alive(self) -> None:
        self._beat = None
        if self.passing:
            self.connection.reply(Kind.PART, next(iter(self.passing)), (b"", []))
            self._beat = self.node.loop.call_later(BEAT_S, self._tell_alive)

    def _hold_back(self) -> None:
        full = [connection for connection in self._below() if connection.is_full]
        if full and not self._paused:
            self._paused = True
            self.connection.pause()
            self.start(self._go_on_after(full))

    async def _go_on_after(self, full: list[Connection]) -> None:
        while full:
            await asyncio.gather(*(connection.drained() for connection in full))
            full = [connection for connection in self._below() if connection.is_full]
        self._paused = False
        self.connection.resume()


class _Passing:
    """One message here: what is still awaited from below, and the answers that are to go up."""

    def __init__(self, source: _Source, call: int, header: Header, branch: Branch) -> None:
        self._source = source
        self._call = call
        self._header = header
        self._branch = branch
        self._flush_s = header.flush_s
        self._waits: dict[int, Callable[[], None]] = {}
        """What cancels it, of each leaf (by position) and each branch below (by -1 - its index)."""
        self._answers: list[Answer] = []
        self._operands: dict[tuple[int, int], Answer] = {}
        self._partial: dict[int, list[Answer]] = {}
        self._timer: asyncio.Handle | None = None
        self._sent = False
        self._cancelled = False

    def send(self, message: Pickled) -> None:
        if self._header.mode == "tell":
            self._tell_leaves(message)
        else:
            for position, socket in self._branch.own:
                self._call_leaf(position, socket, message)
        for index, branch in enumerate(self._branch.below):
            self._send_below(index, branch, message)
        self._sent = True
        self._finish_if_done()

    def _call_leaf(self, position: int, socket: str, message: Pickled) -> None:
        try:
            connection = self._source.leaf(socket)
        except MilkweedError:
            self._answers.append(Answer(position, Status.ASK))
            return
        outgoing = numbered(self._header.envelope(position), message)
        call = connection.send_call(outgoing, partial(self._leaf_replied, position))
        self._waits[position] = partial(connection.send_cancel, call)

    def _tell_leaves(self, message: Pickled) -> None:
        unsent: dict[int, Connection] = {}
        for position, socket in self._branch.own:
            try:
                connection = self._source.leaf(socket)
            except MilkweedError:
                self._answers.append(Answer(position, Status.ASK))
                continue
            connection.send_tell(numbered(self._header.envelope(position), message))
            if connection.unsent:
                unsent[position] = connection
                self._waits[position] = lambda: None
        if unsent:
            self._source.start(self._await_sent(unsent))

    async def _await_sent(self, unsent: dict[int, Connection]) -> None:
        for position, connection in unsent.items():
            await connection.flushed()
            self._waits.pop(position, None)
            if connection.is_closed:
                self._answers.append(Answer(position, Status.ASK))
        self._finish_if_done()

    def _send_below(self, index: int, branch: Branch, message: Pickled) -> None:
        try:
            line = self._source.line(branch.socket)
        except MilkweedError:
            self._answers += _to_ask(branch, ())
            return
        call = line.send(self._header, branch, message, partial(self._below_replied, index))
        self._waits[-1 - index] = partial(line.connection.send_cancel, call)

    def cancel(self) -> None:
        """Ends what is under way below; what comes from there goes up at once, and uncombined."""
        for cancel in self._waits.values():
            cancel()
        self._flush_s, self._cancelled = 0.0, True
        self._answers += self._operands.values()
        self._operands.clear()
        self._flush_soon()

    def leave(self) -> None:
        """Nobody is there to be answered."""
        self._waits.clear()
        self._sent = False
        if self._timer is not None:
            self._timer.cancel()

    def _leaf_replied(self, position: int, reply: WireFrame | MilkweedError) -> None:
        if self._waits.pop(position, None) is None:
            return
        if isinstance(reply, MilkweedError):
            self._answers.append(Answer(position, Status.ASK))
        else:
            self._took((0, position), Answer.of(position, reply))
        self._finish_if_done()

    def _below_replied(self, index: int, reply: WireFrame | MilkweedError) -> None:
        if -1 - index not in self._waits:
            return
        if isinstance(reply, MilkweedError):
            del self._waits[-1 - index]
            known = [one.position for one in self._partial.pop(index, ())]
            self._answers += _to_ask(self._branch.below[index], known)
        else:
            if reply.body:
                self._took_bundle(index, reply)
            if reply.kind is not Kind.PART:
                del self._waits[-1 - index]
                self._partial.pop(index, None)
        self._finish_if_done()

    def _took_bundle(self, index: int, reply: WireFrame) -> None:
        if reply.kind is Kind.ERROR:
            raise ProtocolError("protocol_error", "a relay answered with an error", SAME_VERSION)
        if self._header.mode != "reduce" and reply.kind is not Kind.PART and index not in self._partial:
            self._answers.append(Answer(-1, Status.BUNDLE, reply.body, reply.buffers))  # all of it, as it is
            return
        answers = unpack(reply.body, reply.buffers)
        if reply.kind is Kind.PART:
            self._partial.setdefault(index, []).extend(answers)
        for one in answers:
            if one.status is Status.RESULT:
                self._answers.append(one)  # it could not be combined below
            else:
                self._took((1, index), one)

    def _took(self, key: tuple[int, int], answer: Answer) -> None:
        is_value = answer.status is Status.RESULT or answer.status is Status.COMBINED
        if self._header.mode == "reduce" and is_value and not self._cancelled:
            self._operands[key] = answer
        else:
            self._answers.append(answer)

    def _finish_if_done(self) -> None:
        if not self._sent:
            return
        if self._waits:
            if self._answers:
                self._flush_soon()
            return
        self._sent = False
        if self._timer is not None:
            self._timer.cancel()
        if self._operands:
            self._answers += self._combined()
        del self._source.passing[self._call]
        self._send_up(Kind.RESULT)

    def _flush_soon(self) -> None:
        if self._timer is None:
            loop = self._source.node.loop
            self._timer = loop.call_later(self._flush_s, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._answers and self._sent:
            self._send_up(Kind.PART)

    def _send_up(self, kind: Kind) -> None:
        answers, self._answers = self._answers, []
        self._source.connection.reply(kind, self._call, pack(answers) if answers else (b"", []))

    def _combined(self) -> list[Answer]:
        """The operands as one; as they are, where that fails: it will fail at the caller, who is told."""
        operands = [self._operands[key] for key in sorted(self._operands)]
        positions: list[int] = []
        values = []
        try:
            for one in operands:
                value = loads(one.body, one.buffers)
                ranks, value = value if one.status is Status.COMBINED else ((one.position,), value)
                positions += ranks
                values.append(value)
            total = combine(read_operation(self._header.operation), values)
            body, buffers = dumps((tuple(positions), total))
            return [Answer(positions[0], Status.COMBINED, body, tuple(buffers))]
        except Exception as error:
            logger.info("a reduction goes on uncombined: %r", error)
            return operands


def _to_ask(branch: Branch, known: Collection[int]) -> Iterator[Answer]:
    """Of a branch that failed: what is not known is to be asked for directly; its relay is marked."""
    for position in branch.positions():
        if position == branch.relay or position not in known:
            yield Answer(position, Status.ASK, b"relay" if position == branch.relay else b"")
