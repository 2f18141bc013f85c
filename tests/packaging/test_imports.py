"""What each of our processes loads: the server without torch, the daemons without anything heavy."""

import subprocess
import sys

import pytest

HEAVY = ("mcp", "numpy", "pydantic", "rich", "torch")


def loaded_by(module: str) -> set[str]:
    """The top-level packages in `sys.modules` after an import of `module` in a process of its own."""
    code = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["milkweed.server", "milkweed.server.app", "milkweed.server.cli", "milkweed.tools"]
)
def test_the_server_never_imports_torch(module: str) -> None:
    assert not loaded_by(module) & {"torch", "numpy"}


@pytest.mark.parametrize(
    "module",
    [
        "milkweed.runtime.keeper.__main__",
        "milkweed.runtime.agent.__main__",
        "milkweed.runtime.agent.guard",
        "milkweed.runtime.schedulers.enter_host",
    ],
)
def test_a_daemon_imports_nothing_heavy(module: str) -> None:
    assert not loaded_by(module) & set(HEAVY)


def test_the_guard_needs_no_event_loop() -> None:
    assert not loaded_by("milkweed.runtime.agent.guard") & {"anyio", "asyncio"}
