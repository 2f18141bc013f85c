"""A run's output as it comes, until the run ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from ...tools.outcome import health_of
from ...tools.reading import page_forward
from ...tools.selection import select_ranks

if TYPE_CHECKING:
    from ...runtime.client import Mesh
    from ...runtime.records import RunView

__all__ = ["follow"]

_WAIT_S = 20.0
_PIECE_BYTES = 64 * 1024
# Output is taken together for so long, so that what ranks write at once is shown once.
_GATHER_S = 0.2


async def follow(mesh: Mesh, run: str, ranks: str | None = None) -> RunView:
    """Prints what the ranks write, folded, from the beginning; returns the run when it has ended.

    A run that hangs is told on standard error, once for each time that it begins to.
    """
    import anyio

    view = await mesh.run(run)
    hung = False
    offsets = dict.fromkeys(select_ranks(ranks, view), 0)
    while True:
        ended = view.ended_at is not None
        slices = await mesh.read_output(
            run, ranks=tuple(offsets), offsets=offsets, tail_bytes=None, max_bytes=_PIECE_BYTES
        )
        page = page_forward(slices, offsets, _PIECE_BYTES)
        offsets = dict(page.offsets)
        if page.text:
            print(page.text, flush=True)
        if page.more:
            continue
        if ended:
            return view
        if health_of(view) == "hung" and not hung:
            still_s = time.time() - (view.still_since or 0.0)
            print(
                f"{run}: no rank has moved for {still_s:.0f} s: milkweed diagnose {run} tells why",
                file=sys.stderr,
                flush=True,
            )
        hung = health_of(view) == "hung"
        began = time.monotonic()
        view = await mesh.wait_run(run, until="output", pattern=None, timeout_s=_WAIT_S)
        if view.ended_at is None and time.monotonic() - began < _WAIT_S:
            await anyio.sleep(_GATHER_S)
