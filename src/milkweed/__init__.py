"""Milkweed hands a supercomputer to an AI agent: an MCP server around an actor runtime.

In a rank, `milkweed.report(step=3, loss=0.5)` tells how far it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime.metrics.reporting import report as report

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "report":
        from .runtime.metrics.reporting import report

        globals()["report"] = report
        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
