"""What is left mounted when a host's processes were killed."""

from milkweed.runtime.mounts.unmount_below import ours_below

MOUNTINFO = r"""
22 1 0:20 / /proc rw - proc proc rw
40 1 0:50 / /state/hosts/1/work\040space ro,nosuid - fuse.milkweed milkweed:mesh-t.1 ro
41 40 0:51 / /state/hosts/1/work\040space/data ro - fuse.milkweed milkweed:mesh-t.1 ro
42 1 0:52 / /state/hosts/10/workspace ro - fuse.milkweed milkweed:mesh-t.10 ro
43 1 0:53 / /state/hosts/1/other rw - fuse.sshfs them rw
44 1 0:54 / /home/me/project ro - fuse.milkweed milkweed:mesh-u.0 ro
""".lstrip()


def test_only_ours_below_the_directory_are_taken_the_innermost_first() -> None:
    assert ours_below("/state/hosts/1", MOUNTINFO) == [
        "/state/hosts/1/work space/data",
        "/state/hosts/1/work space",
    ]
    assert ours_below("/elsewhere", MOUNTINFO) == []
