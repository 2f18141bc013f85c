"""`confirm="plan"`: what a call would do is told first, and done by a second call that gives its token.

A token is for one call with the very arguments and for the state that it was looked at, once, for a short
time. It keeps an agent from doing by the way what it did not know of; it keeps out nobody who is determined.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ..runtime.index import Plan
from .registry import Call

__all__ = ["HAS_CHANGED", "PLAN_S", "Confirm", "confirmed", "why_not"]

PLAN_S = 300.0
HAS_CHANGED = "what it would do has changed since the plan was made"

Confirm = Annotated[
    str | None, Field(pattern=r"^plan-[a-z0-9]{3,12}$", description="the plan that an earlier call gave")
]


def confirmed(
    call: Call, tool: str, arguments: Mapping[str, Any], state: object, given: str | None
) -> tuple[str, str]:
    """Whether a call may do what it would do to that state: an empty token means yes; else the token of a new
    plan, and why the one that was given is none of it (empty: none was given).
    """
    words = json.dumps([tool, call.principal, arguments], sort_keys=True, default=str)
    seen = hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()
    why = ""
    if given is not None:
        why = why_not(call.meshes.take_plan(given), words, seen)
        if not why:
            return "", ""
    return call.meshes.add_plan(words, seen, time.time() + PLAN_S).plan, why


def why_not(plan: Plan | None, call: str, state: str) -> str:
    """Why a plan does not confirm a call; empty: it does."""
    if plan is None:
        return f"the plan was used, is older than {PLAN_S / 60:.0f} minutes, or never was"
    if plan.call != call:
        return "the plan was for another call"
    if plan.state != state:
        return HAS_CHANGED
    return ""
