"""Whether runs move: a machine over samples of their ranks, pure; `services/watching.py` runs it."""

from __future__ import annotations

from .machine import State, begin, step
from .policy import VARIABLE, WatchPolicy, parse_policy

__all__ = ["VARIABLE", "State", "WatchPolicy", "begin", "parse_policy", "step"]
