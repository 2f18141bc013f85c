from __future__ import annotations

import anyio.to_thread
import pytest

from milkweed.runtime.mounts import in_the_way, probe


@pytest.fixture(params=["mount", "copy", "isolated", "isolated copy"])
async def place(request: pytest.FixtureRequest) -> str:
    """How hosts have the workspace: a mount or a copy, elsewhere or over the client's own path."""
    if not request.param.endswith("copy") and (mends := in_the_way(await anyio.to_thread.run_sync(probe))):
        pytest.skip(f"no mounts here: {mends[0].problem}")
    if request.param.startswith("isolated"):
        request.getfixturevalue("namespaces")
    return str(request.param)


@pytest.fixture(autouse=True)
def _bytecode_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where nobody forbids it: a stale .pyc is what a workspace must not lead to."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
