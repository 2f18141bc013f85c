"""Bytecode of a mounted workspace lies on plain disk, however a run starts."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from milkweed.runtime.holdings import HostLayout

from .warm_host import WarmHost, open_warm

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(170)]

MAIN = """
import importlib.util, os, sys, uuid
if "module" in sys.modules:
    raise SystemExit("imported already")
import module
from below import deep
print(module.__cached__, deep.__cached__)
print([os.path.exists(one.__cached__) for one in (module, deep)])
print(importlib.util.source_from_cache(deep.__cached__))
"""


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WarmHost]:
    """One that shows the workspace by a mount, as far as runs can tell."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    place = HostLayout(tmp_path).mount(f"{tmp_path}/ws")
    place.make(f"{tmp_path}/ws")
    place.bytecode.mkdir()
    async with open_warm(tmp_path, modules="json") as host:
        host.write({"ws/main.py": MAIN, "ws/module.py": "A = 1\n", "ws/below/deep.py": "B = 2\n"})
        yield host


async def test_a_warm_run_and_a_cold_one_have_it_at_the_same_place(host: WarmHost) -> None:
    ws = host.directory / "ws"
    warm, cold = await host.pair(f"{ws}/main.py")
    assert warm.output == cold.output
    plain = f"{HostLayout(host.directory).mount(str(ws)).bytecode}{ws}"
    tag = sys.implementation.cache_tag
    assert cold.output == (
        f"{plain}/module.{tag}.pyc {plain}/below/deep.{tag}.pyc\n[True, True]\n{ws}/below/deep.py\n"
    )
    assert not any(ws.rglob("__pycache__"))


async def test_a_prefix_of_the_users_wins_in_a_warm_run_too(host: WarmHost) -> None:
    wanted = str(host.directory / "wanted")
    env = {"PYTHONPYCACHEPREFIX": wanted}
    for outcome in await host.pair(f"{host.directory}/ws/main.py", env=env):
        assert outcome.output.startswith(f"{wanted}/"), outcome.output
