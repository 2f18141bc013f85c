"""Unmounts every mount of ours below a directory: what a guard runs when all processes of a host have ended.

    python -I -S unmount_below.py DIRECTORY

It imports nothing of the package, and asks no file system: those that it is for have nobody who answers.
"""

import os
import subprocess
import sys

TYPE = "fuse.milkweed"
UNMOUNTS = (("umount", "-l", "--"), ("fusermount3", "-u", "-z", "--"))  # as root; as a user


def ours_below(directory: str, mountinfo: str) -> list[str]:
    """The innermost first."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        path = unescaped(before.split()[4])
        if after.split()[0] == TYPE and path.startswith(directory.rstrip("/") + "/"):
            found.append(path)
    return found[::-1]


def unescaped(field: str) -> str:
    """Blanks and backslashes of a path are written in octal."""
    first, *parts = field.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts)


def unmount_below(directory: str) -> None:
    """Blocks: call it in a thread."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        paths = ours_below(os.path.abspath(directory), file.read())
    for path in paths:
        for command in UNMOUNTS:
            try:
                done = subprocess.run([*command, path], stderr=subprocess.DEVNULL, timeout=5, check=False)
                if done.returncode == 0:
                    break
            except (OSError, subprocess.TimeoutExpired):
                continue


if __name__ == "__main__":
    unmount_below(sys.argv[1])
