from __future__ import annotations

import pytest

from milkweed.runtime.filesystems import find_type

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
