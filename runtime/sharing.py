"""Whether a host sees the client's own directory, by a file with a secret in it.

Path names say nothing: two machines may have different directories of one name, and one under two names.
Where nobody can write to the directory, its device and inode in this boot of the machine are compared.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Token", "left_in", "sees"]

PREFIX = ".milkweed-token-"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FORGOTTEN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Token:
    """A file that lies in the client's directory for a moment; nameless, what the directory itself is."""

    name: str
    content: bytes


@contextmanager
def left_in(directory: Path) -> Iterator[Token]:
    """A token, for the length of a `with` block. Tokens that a killed process left are removed.

    Raises:
        OSError: the directory cannot be looked at.
    """
    token = Token(f"{PREFIX}{secrets.token_hex(8)}", secrets.token_hex(32).encode())
    path = directory / token.name
    try:
        _write(path, token.content)
    except OSError:
        yield Token("", _identity(directory))
        return
    try:
        _remove_forgotten(directory)
        yield token
    finally:
        with suppress(OSError):
            path.unlink()


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def sees(directory: Path, token: Token) -> bool:
    """Whether a directory of this host is the one that the token was left in."""
    try:
        if not token.name:
            return _identity(directory) == token.content
        return (directory / token.name).read_bytes() == token.content
    except OSError:
        return False


def _identity(directory: Path) -> bytes:
    found = directory.stat()
    return f"{_BOOT.read_text().strip()} {found.st_dev} {found.st_ino}".encode()


def _remove_forgotten(directory: Path) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _FORGOTTEN_S:
                        os.unlink(entry.path)
