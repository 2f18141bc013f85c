"""Meshes of real processes for one test, in directories of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio

from milkweed.runtime.client import Meshes, open_meshes
from milkweed.runtime.errors import Conflict
from milkweed.runtime.paths import Places

__all__ = ["open_places", "open_real_meshes"]

_RELEASE_S = 60.0


@contextmanager
def open_places() -> Iterator[Places]:
    """State and runtime directories of this test alone; short, since sockets live there."""
    root = Path(tempfile.mkdtemp(prefix="mw-", dir="/tmp"))
    try:
        for name in ("s", "r"):
            (root / name).mkdir(mode=0o700)
        yield Places(root / "s", root / "r")
    finally:
        _remove(root)


def _remove(root: Path) -> None:
    """A guard that has given its host back may still put its own last files away."""
    for _ in range(100):
        shutil.rmtree(root, ignore_errors=True)
        if not root.exists():
            return
        time.sleep(0.05)


@asynccontextmanager
async def open_real_meshes(places: Places) -> AsyncIterator[Meshes]:
    """The client; whatever mesh a test leaves is released, also by a test that fails."""
    async with open_meshes(places) as opened:
        try:
            yield opened
        finally:
            with anyio.CancelScope(shield=True), anyio.fail_after(_RELEASE_S):
                for view in await opened.list():
                    with suppress(Conflict):  # its lease ends just now
                        await (await opened.get(view.mesh)).release()
