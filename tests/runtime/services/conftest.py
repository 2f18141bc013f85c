"""The Files service of a host in this process, on a workspace of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from milkweed.runtime.agent.children import open_children
from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.agent.spool import Spool
from milkweed.runtime.services.files import Files


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[HostContext]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    async with open_children(subreaper=False) as children:
        spool = Spool(tmp_path / "spool.jsonl")
        yield HostContext("mesh-t", 0, "host-0", "127.0.0.1", tmp_path, str(workspace), children, spool)


@pytest.fixture
def files(context: HostContext) -> Files:
    return Files(context)


@pytest.fixture
def work(context: HostContext) -> Path:
    """The directory that relative paths start from."""
    return Path(context.workspace)
