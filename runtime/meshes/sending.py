"""The way that a message takes to the ranks of a mesh: to each directly, or over a tree of relays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ..addresses import ProcAddress
from ..call import Connection
from ..errors import Unavailable
from ..node import Future, Node
from ..pickling import Pickled
from ..tree import Plan, Routes, Trees
from .calling import Explain, MeshCall, Outcome, to_follow
from .tree_call import OnCombined, TreeCall, TreeTell

__all__ = ["AnyCall", "begin_call", "tell"]

GATHER_S = 0.05
_MOST_UNSENT = 256 * 1024 * 1024
_MOST_OPEN = 128 * 1024

AnyCall = MeshCall | TreeCall


def begin_call(
    node: Node,
    label: str,
    addresses: Sequence[ProcAddress],
    ranks: Sequence[int],
    routes: Routes,
    message: Pickled,
    on_outcome: Callable[[int, Outcome], None],
    explain: Explain | None,
    *,
    flush_s: float = GATHER_S,
    operation: bytes = b"",
    on_combined: OnCombined | None = None,
) -> list[AnyCall]:
    """Sends a call to all `ranks`, whose procs are at `addresses`; what is under way.

    A rank that may not have read yet what it was sent directly has this directly too, behind that.
    """
    trees = node.part(Trees, Trees)
    plan, behind = _plan(node, trees, addresses, ranks, routes)
    if plan is None:
        return [MeshCall(node, label, addresses, message, on_outcome, explain)]
    over_tree = TreeCall(
        node,
        label,
        addresses,
        plan,
        message,
        on_outcome,
        explain,
        flush_s=flush_s,
        operation=operation,
        on_combined=on_combined,
    )
    if not behind:
        return [over_tree]
    directly = MeshCall(
        node,
        label,
        [addresses[at] for at in behind],
        message,
        lambda at, outcome: on_outcome(behind[at], outcome),
        None if explain is None else lambda at, error, tell: explain(behind[at], error, tell),
    )
    return [over_tree, directly]


def tell(
    node: Node,
    label: str,
    addresses: Sequence[ProcAddress],
    ranks: Sequence[int],
    routes: Routes,
    message: Pickled,
) -> Future[None]:
    """Sends a message that is not answered to all `ranks`; done when it has left for all of them.

    Raises:
        Unavailable: mailbox_full; connection_lost, a rank cannot be reached.
    """
    trees = node.part(Trees, Trees)
    plan, behind = _plan(node, trees, addresses, ranks, routes)
    direct = range(len(addresses)) if plan is None else behind
    connections = [node.connection(addresses[at].socket, f"proc {addresses[at].proc}") for at in direct]
    relays = () if plan is None else plan.branches
    lines = [line for branch in relays if (line := trees.open_line(branch.socket)) is not None]
    if any(line.open > _MOST_OPEN for line in lines) or any(
        connection.unsent > _MOST_UNSENT
        for connection in (*connections, *(line.connection for line in lines))
    ):
        raise Unavailable(
            "mailbox_full",
            f"{label} does not keep up: over {_MOST_UNSENT >> 20} MiB wait to be sent to it",
            "Await what broadcast gives, or use call.",
        )
    for connection, at in zip(connections, direct, strict=True):
        previous = node.sent_by_tree.get(addresses[at].socket)
        connection.send_tell(to_follow(previous, message) if previous else message)
    directly = _sent(connections)
    if plan is None:
        return directly
    over_tree = TreeTell(node, addresses, plan, message)
    return over_tree.sent if directly.done() else node.start(_both(directly, over_tree.sent))


def _sent(connections: Sequence[Connection]) -> Future[None]:
    """Done when what was sent to all of them until now has left this process."""
    sent: Future[None] = Future()
    others = deque(range(len(connections) - 1))  # its `pop` is atomic: threads count it down

    def one_has_all() -> None:
        try:
            others.pop()
        except IndexError:
            sent.settle(lambda: None)

    for connection in connections:
        connection.when_sent(one_has_all)
    if not connections:
        sent.settle(lambda: None)
    return sent


async def _both(directly: Future[None], over_tree: Future[None]) -> None:
    await directly
    await over_tree


def _plan(
    node: Node, trees: Trees, addresses: Sequence[ProcAddress], ranks: Sequence[int], routes: Routes
) -> tuple[Plan | None, Sequence[int]]:
    """The tree, None where there is to be none; and the positions that are not to be in it."""
    if len(addresses) < trees.least_ranks:
        return None, ()
    plan = routes.plan(trees, ranks, addresses)
    if len(plan.branches) == 1 and not plan.branches[0].below:
        return None, ()  # one relay would have all the work
    behind = []
    for at, socket in enumerate(plan.sockets):
        connection = node.open_connection(socket)
        if connection is not None and not connection.has_all:
            behind.append(at)
    if not behind:
        return plan, ()
    behind_set = set(behind)
    rest = [at for at in range(len(addresses)) if at not in behind_set]
    if len(rest) < trees.least_ranks:
        return None, ()
    return trees.plan(addresses, trees.to_avoid(addresses), rest), behind
