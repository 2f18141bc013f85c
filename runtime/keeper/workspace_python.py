"""What `python` means on a mesh."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["workspace_python"]


def workspace_python(workspace: str) -> str:
    """The workspace's own, else the one that runs us; hosts say what it stands on."""
    own = Path(workspace) / ".venv" / "bin" / "python"
    return str(own) if os.path.lexists(own) else sys.executable
