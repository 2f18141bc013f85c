"""Supervision: what died and how (`failure`), what to do about it (`machine`, pure), and doing it
(`supervisor`).

A supervisor restarts its children by a policy, with a back-off, and escalates once when they fail more
often than the policy allows. Who its children are (ranks, procs, actors) and what an escalation leads to is
its owner's.
"""

from .failure import Failure
from .machine import (
    Action,
    Child,
    ChildEnded,
    ChildStarted,
    End,
    Escalate,
    Event,
    GiveUp,
    Restart,
    RestartChild,
    Start,
    State,
    StopAll,
    Timer,
    WakeAt,
    begin,
    step,
)
from .supervisor import Hands, Supervisor

__all__ = [
    "Action",
    "Child",
    "ChildEnded",
    "ChildStarted",
    "End",
    "Escalate",
    "Event",
    "Failure",
    "GiveUp",
    "Hands",
    "Restart",
    "RestartChild",
    "Start",
    "State",
    "StopAll",
    "Supervisor",
    "Timer",
    "WakeAt",
    "begin",
    "step",
]
