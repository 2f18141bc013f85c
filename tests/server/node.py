"""Programs of Node's world, as `make test-inspector` sets them up."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ARTEFACTS", "CONFORMANCE", "INSPECTOR", "MODULES", "chromium", "environment", "node", "run"]

_ROOT = Path(__file__).parents[2]
_TOOLS = _ROOT / "build" / "inspector"
_RUN = "run `make test-inspector`"
_SCOPE = "node_modules/@modelcontextprotocol"

ARTEFACTS = Path(os.environ.get("MILKWEED_TEST_ARTEFACTS", _ROOT / "build" / "test-artefacts"))
MODULES = _TOOLS / "node_modules"
CONFORMANCE = _TOOLS / _SCOPE / "conformance/dist/index.js"
INSPECTOR = _TOOLS / _SCOPE / "inspector/clients/launcher/build/index.js"


def node() -> str:
    program = _TOOLS / "node" / "bin" / "node"
    missing = [path for path in (program, INSPECTOR, CONFORMANCE) if not path.exists()]
    assert not missing, f"no {missing[0]}: {_RUN}"
    return str(program)


def chromium() -> str:
    """The system's."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, f"no chromium on the path: {_RUN} as root, or apt-get install chromium"
    return found


def environment(home: Path, places: Mapping[str, str] | None = None) -> dict[str, str]:
    """With a home of the program's own: the Inspector keeps settings there."""
    return {**os.environ, **(places or {}), "HOME": str(home), "MCP_STORAGE_DIR": str(home)}


def run(script: Path, *arguments: str, home: Path, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node(), str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
    )
