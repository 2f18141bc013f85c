from __future__ import annotations

from tests.runtime.mounts.conftest import _mends, directory, fuse

__all__ = ["_mends", "directory", "fuse"]
