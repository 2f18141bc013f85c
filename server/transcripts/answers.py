"""What a client got of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """`result` is the structured answer, None where it is text alone."""

    text: str = ""
    result: Mapping[str, Any] | None = None
    is_error: bool = False
