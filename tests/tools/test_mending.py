"""The next step after a failure, from its words and how hosts have the client's directories."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from milkweed.runtime.records import LeftOut, MeshSpec, MeshView, ShownTree, TreeView
from milkweed.tools.mending import Mender


def next_step(
    words: str, *here: str, mode: str = "mount", left_out: str = "", links: Mapping[str, str] | None = None
) -> str:
    """On a mesh whose hosts have `/ws` in this mode, of a client with these paths, and links."""
    shown = TreeView((ShownTree(0, mode, "/ws"),), left_out=(LeftOut(left_out, 1, 10),) if left_out else ())
    view = MeshView(
        "mesh-a", MeshSpec("a", hosts=1, procs_per_host=1, workspace="/ws"), "ready", workspace=shown
    )
    real = {**{path: path for path in ("/ws", *here)}, **(links or {})}
    return Mender(view, lambda path: real.get(path, "")).next_step(words)


NOT_THERE = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"


def test_what_only_this_machine_has_is_to_be_mounted() -> None:
    words = NOT_THERE.format("/data/set/a.bin")
    told = next_step(words, "/data/set/a.bin")
    assert told.startswith("/data/set/a.bin is on this machine and not on the host")
    assert "mount_directory(mesh='mesh-a', source='/data/set')" in told
    assert next_step(words, "/data/set/a.bin", mode="shared") == told
    assert next_step(NOT_THERE.format("../data/a"), "/data/a").startswith("/data/a is on this machine")


def test_a_link_that_leads_out_of_the_workspace_is_told_with_where_to() -> None:
    told = next_step(NOT_THERE.format("linked/a.bin"), links={"/ws/linked/a.bin": "/data/set/a.bin"})
    assert told.startswith("/data/set/a.bin is on this machine and not on the host")
    assert "source='/data/set'" in told


def test_a_file_that_is_nowhere_is_the_programs_affair() -> None:
    assert next_step(NOT_THERE.format("/data/set/a.bin")) == ""
    assert next_step(NOT_THERE.format("a.bin")) == ""
    assert next_step(NOT_THERE.format("a.bin"), left_out="data (data/)") == ""


@pytest.mark.parametrize("path", ["data/a.csv", "/ws/data/a.csv", "./data/a.csv"])
def test_what_a_rule_leaves_out_is_told_with_the_rule(path: str) -> None:
    told = next_step(NOT_THERE.format(path), "/ws/data/a.csv", left_out="data (data/)")
    assert told.startswith("Hosts are not shown data (data/) of the workspace: a line !/data at the end")


def test_a_file_of_the_workspace_without_a_known_rule_leads_to_all_that_is_left_out() -> None:
    told = next_step(NOT_THERE.format("/ws/a.csv"), "/ws/a.csv", left_out="data (data/)")
    assert "workspace_left_out of mesh_status" in told
    assert next_step(NOT_THERE.format("a.csv"), "/ws/a.csv") == ""  # maybe it is of another directory
    assert next_step(NOT_THERE.format("/ws/a.csv"), "/ws/a.csv", mode="shared") == ""


@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 30] Read-only file system: 'ckpt'",
        "RuntimeError: [enforce fail] . open file failed with strerror: Read-only file system",
        "script: line 1: x.txt: Read-only file system",
    ],
)
def test_a_write_to_the_mounted_workspace_is_sent_elsewhere(words: str) -> None:
    assert next_step(words).startswith("What mount_directory shows is read-only for hosts")
    assert "fetch_files" in next_step(words)
    assert next_step(words, mode="copy") == next_step(words, mode="shared") == ""


@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 28] No space left on device: 'ckpt/step-9.pt'",
        "ranks 0-1: the disk of its output was full when it failed",
    ],
)
def test_a_full_disk_is_told_with_what_makes_room(words: str) -> None:
    assert "mesh_status(mesh='mesh-a')" in next_step(words)
    assert "discard_host_changes" in next_step(words)
    assert next_step(words, mode="shared") == "A disk of the hosts is full: make room there."


def test_a_package_is_installed_where_the_hosts_interpreter_is_from() -> None:
    words = "ModuleNotFoundError: No module named 'einops.layers'"
    assert next_step(words, mode="shared") == (
        "If einops is a package: install it for the interpreter that runs (python -m pip install ...)."
    )
    assert "on this machine, into the workspace's .venv" in next_step(words, "/ws/.venv/bin/python")
    assert "into a .venv of the workspace" in next_step(words)
    assert "name .venv/bin/python" in next_step(words)


def test_a_lost_mount_is_no_reason_to_look_further() -> None:
    assert "run it again" in next_step("OSError: [Errno 107] Transport endpoint is not connected: 'data.bin'")
    assert next_step("OSError: [Errno 107] Transport endpoint is not connected") == ""  # of a socket
    assert next_step("ValueError: no") == ""
