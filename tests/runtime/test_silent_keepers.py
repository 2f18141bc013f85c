"""What is said of a keeper that does not answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milkweed.runtime.client.mesh import why_silent
from milkweed.runtime.paths import MeshPaths


@pytest.fixture
def paths(tmp_path: Path) -> MeshPaths:
    """Of a mesh whose keeper is this process."""
    found = MeshPaths(tmp_path / "state" / "mesh-a", tmp_path / "runtime" / "a", tmp_path / "data")
    found.root.mkdir(parents=True)
    found.sockets.mkdir(parents=True)
    found.lock.write_text(str(os.getpid()))
    return found


def test_one_that_lives_and_is_mute_may_be_killed(paths: MeshPaths) -> None:
    paths.keeper_socket.touch()
    cause, mend = why_silent("mesh-a", paths)
    assert "is there but does not answer" in cause
    assert f"kill -9 {os.getpid()}" in mend


def test_one_that_listens_in_another_directory_is_not_to_be_killed(paths: MeshPaths) -> None:
    cause, mend = why_silent("mesh-a", paths)
    assert f"(pid {os.getpid()}) has no socket in {paths.sockets.parent}" in cause
    assert mend.startswith("Set MILKWEED_RUNTIME_DIR ")
    assert "kill" not in mend


def test_one_that_is_not_there_did_not_start(paths: MeshPaths) -> None:
    paths.lock.write_text("")
    assert why_silent("mesh-a", paths)[0] == "the keeper of mesh-a does not start"
