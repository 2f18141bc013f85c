"""Directories of this machine that a caller names."""

from __future__ import annotations

import os
from pathlib import Path

from ..runtime.errors import InvalidArgument
from ..runtime.names import quoted

__all__ = ["local_directory"]


def local_directory(given: str | None, what: str) -> str:
    """Its absolute path; without one, the working directory's.

    Raises:
        InvalidArgument: invalid_path, it is none.
    """
    path = os.path.abspath(os.path.expanduser(given or "."))
    if not os.path.isdir(path):
        why = "is a file" if os.path.exists(path) else "does not exist"
        raise InvalidArgument(
            "invalid_path",
            f"{what} '{quoted(path)}' {why}",
            f"Name a directory of this machine, absolute or relative to {Path.cwd()}.",
        )
    return path
