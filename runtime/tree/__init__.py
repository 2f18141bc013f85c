"""Calls of many ranks over a tree of hosts: who passes what on, in what order it is taken and gathered.

A sender has `trees.py`, a relay `relay.py`, who is called `inbox.py`; `routing`, `envelope`, `order` and
`combine` are pure.
"""

from .combine import Operation, check_operation, combine, finished, packed_operation
from .envelope import Answer, Envelope, Header, Status, numbered, read_numbered, standing, unpack
from .inbox import Inbox, Route, is_relayed, send_outcome
from .routing import Branch, branches
from .trees import Plan, Routes, Trees

__all__ = [
    "Answer",
    "Branch",
    "Envelope",
    "Header",
    "Inbox",
    "Operation",
    "Plan",
    "Route",
    "Routes",
    "Status",
    "Trees",
    "branches",
    "check_operation",
    "combine",
    "finished",
    "is_relayed",
    "numbered",
    "packed_operation",
    "read_numbered",
    "send_outcome",
    "standing",
    "unpack",
]
