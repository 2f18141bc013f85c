"""Calls of many ranks over a tree of hosts: who passes what on, in what order it is taken, how it is gathered.

The sender's end is `tree_call.py`, a relay's `relay.py`; `routing`, `envelope`, `order` and `combine` are pure.
"""

from .combine import Operation, check_operation, combine, finished
from .envelope import Envelope, numbered, read_numbered
from .inbox import Inbox, Route, is_relayed, send_outcome
from .routing import Branch, branches

__all__ = [
    "Branch",
    "Envelope",
    "Inbox",
    "Operation",
    "Route",
    "branches",
    "check_operation",
    "combine",
    "finished",
    "is_relayed",
    "numbered",
    "read_numbered",
    "send_outcome",
]
