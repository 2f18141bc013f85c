from __future__ import annotations

import os

from milkweed.runtime.lock_holders import pids_with_lock

LOCKS = """
1: POSIX  ADVISORY  WRITE 41 fe:01:77 1073741825 1073741825
1: -> POSIX  ADVISORY  WRITE 42 fe:01:77 1073741825 1073741825
2: POSIX  ADVISORY  READ 43 fe:01:77 1073741826 1073742335
3: FLOCK  ADVISORY  WRITE 44 fe:01:78 0 EOF
4: POSIX  ADVISORY  WRITE 0 fe:01:77 0 0
5: OFDLCK ADVISORY  WRITE -1 fe:01:77 0 0
""".splitlines()


def test_who_has_a_write_lock_of_a_file_is_told_and_who_waits_or_reads_is_not() -> None:
    assert pids_with_lock(LOCKS, os.makedev(0xFE, 1), 77) == [41]
    assert pids_with_lock(LOCKS, os.makedev(0xFE, 1), 78) == [44]
    assert pids_with_lock(LOCKS, os.makedev(0xFE, 2), 77) == []
