"""A user whom modes stop, for tests that run as root."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

_NOBODY = 65534


def as_nobody(place: Path, work: str, **names: object) -> None:
    """Does it in a process, in a directory that is that user's then."""
    if os.getuid():
        pytest.skip("needs root to be somebody else")
    os.chown(place, _NOBODY, _NOBODY)
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.fchdir(fd)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            exec(work, {"os": os, **names})
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(fd)
    assert os.waitpid(pid, 0)[1] == 0
