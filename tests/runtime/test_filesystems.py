from __future__ import annotations

import os
from pathlib import Path

import pytest

from milkweed.runtime.filesystems import find_type, is_full

MOUNTS = [
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
    "30 22 0:40 / /home rw - nfs4 server:/home rw,vers=4.2",
    "31 30 0:41 / /home/me/with\\040blank rw - tmpfs tmpfs rw",
    "32 22 0:42 / /tmp rw - tmpfs tmpfs rw",
    "33 22 0:43 / /tmp rw - overlay overlay rw",
    "nonsense",
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homework", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/me/with blank/x", "tmpfs"),
        ("/tmp/x", "overlay"),
    ],
)
def test_the_deepest_and_latest_mount_counts(path: str, kind: str) -> None:
    assert find_type(MOUNTS, path) == kind


def test_a_full_file_system_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_full(tmp_path)
    assert not is_full(tmp_path / "none")
    now = os.statvfs(tmp_path)
    full = os.statvfs_result((*now[:3], 0, 0, *now[5:10]))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert is_full(tmp_path)
