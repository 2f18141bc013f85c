"""Linux calls that Python's standard library lacks.

Each raises `OSError` with the errno of the call and, where one is named, the path. Calls that can block
release the GIL and go on after a signal whose handler did not raise.
"""

from typing import Final

CLONE_NEWNS: Final[int]
CLONE_NEWUTS: Final[int]
CLONE_NEWIPC: Final[int]
CLONE_NEWUSER: Final[int]
CLONE_NEWPID: Final[int]
CLONE_NEWNET: Final[int]
CLONE_NEWCGROUP: Final[int]

MS_RDONLY: Final[int]
MS_NOSUID: Final[int]
MS_NODEV: Final[int]
MS_NOEXEC: Final[int]
MS_REMOUNT: Final[int]
MS_BIND: Final[int]
MS_MOVE: Final[int]
MS_REC: Final[int]
MS_PRIVATE: Final[int]
MS_SLAVE: Final[int]
MS_SHARED: Final[int]

MNT_FORCE: Final[int]
MNT_DETACH: Final[int]

def set_child_subreaper(enabled: bool = True) -> None:
    """Make this process the parent of descendants whose own parent ends, or stop being it.

    A child made by fork does not inherit it; it stays over exec.
    """

def is_child_subreaper() -> bool:
    """Whether orphaned descendants become children of this process."""

def punch_hole(fd: int, offset: int, length: int) -> None:
    """Give back the blocks of `length` bytes from `offset`; the file keeps its size and reads zeros there.

    EOPNOTSUPP where the file system has no holes; EINVAL for a negative offset or a length below 1; EBADF
    where `fd` is not open for writing.
    """

def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces (`CLONE_NEW*`).

    EPERM without the right; EINVAL for a user namespace in a process of several threads.
    """

def setns(fd: int, nstype: int = 0) -> None:
    """Move the calling thread into the namespace behind `fd`, an open `/proc/PID/ns/*` file.

    `nstype` is the `CLONE_NEW*` flag that the namespace must have, 0 for any. With a pidfd, the flags of all
    the namespaces of that process to enter.
    """

def take_image(arguments: bytes, variables: bytes) -> None:
    """Make this process look as if it was executed with these words and variables (`NAME=VALUE`).

    Each has a zero byte at its end. `/proc/self/cmdline`, `/proc/self/environ` and the C library's `environ`
    show them; `os.environ` does not change. EINVAL or EPERM where the kernel does not allow it.
    """

def copied_to_bytes(data: memoryview) -> bytes:
    """`bytes(data)` of contiguous memory, on huge pages where the kernel has them, with the GIL released.

    BufferError where it is not contiguous.
    """

def mount(
    source: str | None, target: str, fstype: str | None = None, flags: int = 0, data: str | None = None
) -> None:
    """Mount `source` on `target`, or change the mount that is there, as mount(2) does (`MS_*` flags)."""

def umount(target: str, flags: int = 0) -> None:
    """Unmount what is mounted on `target` (`MNT_*` flags); a symbolic link there is not followed."""
