"""Mode `shared`: whether a host sees the client's own directory, by a file with a secret in it.

Path names say nothing: two machines may have different directories of one name, and one under two names.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Token", "left_in", "sees"]

PREFIX = ".milkweed-token-"


@dataclass(frozen=True, slots=True)
class Token:
    """A file that lies in the client's directory for a moment."""

    name: str
    content: bytes


@contextmanager
def left_in(directory: Path) -> Iterator[Token]:
    """A token, for the length of a `with` block.

    Raises:
        OSError: the directory cannot be written to.
    """
    token = Token(f"{PREFIX}{secrets.token_hex(8)}", secrets.token_hex(32).encode())
    path = directory / token.name
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(token.content)
    try:
        yield token
    finally:
        with suppress(OSError):
            path.unlink()


def sees(directory: Path, token: Token) -> bool:
    """Whether a directory of this host is the one that the token was left in."""
    try:
        return (directory / token.name).read_bytes() == token.content
    except OSError:
        return False
