"""Procs of a program's own host: the test process is the program, and its host ends with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milkweed.runtime import ProcMesh, this_host

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def procs() -> Iterator[ProcMesh]:
    """Two procs for the tests of one module, which leave them as they are."""
    spawned = this_host().spawn_procs(per_host={"gpus": 2}, name="pair", output="keep").get(DEADLINE_S)
    yield spawned
    spawned.stop(0.0).get(DEADLINE_S)
