"""A supervisor at work: carries out what the machine decides, in one task group.

The life of a child's attempt is one coroutine of the owner's: it starts the child, waits for its end, and
returns how it failed. So everything that a supervisor started has ended when `run` returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc

from .failure import Failure
from .machine import (
    Action,
    ChildEnded,
    ChildStarted,
    End,
    Escalate,
    Event,
    Restart,
    Start,
    State,
    StopAll,
    Timer,
    WakeAt,
    begin,
    step,
)

__all__ = ["Hands", "Supervisor"]

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Hands:
    """What the owner does for the machine.

    `live(child, attempt, started)`: one attempt from its start to its end; calls `started()` once it is up,
    returns its failure, or None. `end(child, attempt)`: makes that attempt end; it may not be up yet, and
    `live` returns when it has ended. `escalate(escalation)`: it was given up.
    """

    live: Callable[[str, int, Callable[[], None]], Coroutine[Any, Any, Failure | None]]
    end: Callable[[str, int], Coroutine[Any, Any, None]]
    escalate: Callable[[Escalate], None]


class Supervisor:
    """`run` is its life; what happens from outside is told by `tell`, from the same loop."""

    def __init__(
        self,
        policy: Restart,
        children: Iterable[str] | Mapping[str, int],
        hands: Hands,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._clock = clock
        self._hands = hands
        self._tasks: anyio.abc.TaskGroup | None = None
        self._changed = anyio.Event()
        self._state, self._actions = begin(policy, children, clock())

    @property
    def state(self) -> State:
        return self._state

    def now(self) -> float:
        """The time to put into events."""
        return self._clock()

    def tell(self, event: Event) -> None:
        """Takes an event; what follows from it is under way on return, once `run` is."""
        self._state, actions = step(self._state, event)
        self._do(actions)
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_changed(self) -> None:
        """Returns after the next event."""
        await self._changed.wait()

    async def run(self) -> None:
        """Returns when the machine is over: nothing is alive, nothing waits to be started.

        Cancelled, it ends nothing: it leaves the children to whoever cancels it.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            first, self._actions = self._actions, ()
            self._do(first)
            while not self._state.over:
                changed, wake = self._changed, self._state.wake
                with anyio.move_on_after(None if wake is None else max(0.0, wake - self._clock())):
                    await changed.wait()
                if wake is not None and self._state.wake == wake and self._clock() >= wake:
                    self.tell(Timer(self._clock()))
        self._tasks = None

    def stop(self) -> None:
        """Has all children ended; `run` returns when they have."""
        self.tell(StopAll(self._clock()))

    def _do(self, actions: Iterable[Action]) -> None:
        if self._tasks is None:
            self._actions = (*self._actions, *actions)
            return
        for action in actions:
            match action:
                case Start(child, attempt):
                    self._tasks.start_soon(self._live, child, attempt)
                case End(child, attempt):
                    self._tasks.start_soon(self._hands.end, child, attempt)
                case Escalate():
                    self._hands.escalate(action)
                case WakeAt():
                    pass  # `run` looks at the state after every event

    async def _live(self, child: str, attempt: int) -> None:
        failure = await self._hands.live(child, attempt, lambda: self.tell(ChildStarted(child, attempt)))
        self.tell(ChildEnded(child, attempt, failure, self._clock()))
