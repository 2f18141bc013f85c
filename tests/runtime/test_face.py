"""The face of the runtime library, pinned."""

from __future__ import annotations

import subprocess
import sys

from milkweed import runtime

FACE = """Actor ActorError ActorMesh Failed Failure Future HostMesh JobRequest JobView Mesh MeshError MeshSpec
    MeshView Meshes MilkweedError ProcMesh RDMAAction RDMABuffer Received Reduced Restart RunRequest RunView
    ValueMesh attach broadcast_buffer current_rank current_size endpoint on_unhandled open_meshes this_host
    this_proc"""


def test_the_public_names_are_these_and_each_can_be_had() -> None:
    assert runtime.__all__ == FACE.split()
    assert all(getattr(runtime, name).__name__ == name for name in runtime.__all__)


def test_a_process_pays_only_for_what_it_uses() -> None:
    code = (
        "import sys, milkweed.runtime; print([name for name in sys.modules if name.startswith('milkweed.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['milkweed.runtime']"
