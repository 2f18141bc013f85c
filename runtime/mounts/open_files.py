"""The host's own files as programs have them open: one descriptor each, whoever reads or writes."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from fcntl import F_GETFL, fcntl

from .nodes import NOT_OPEN, Node, NodeTable
from .overlay import WRITTEN
from .upper import Upper

__all__ = ["OpenFiles"]

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class OpenFiles:
    def __init__(self, table: NodeTable, upper: Upper) -> None:
        self._table = table
        self._upper = upper

    def descriptor(self, node: Node, to_write: bool = False) -> int:
        """
        Raises:
            OSError: it is gone, or it may not be opened.
        """
        if node.fd == NOT_OPEN:
            if node.is_gone:
                raise OSError(errno.ESTALE, "it is gone")
            node.fd = _opened(self._upper.path(node.path))
        if to_write and fcntl(node.fd, F_GETFL) & os.O_ACCMODE == os.O_RDONLY:  # it was not allowed then
            fd = os.open(self._upper.path(node.path), os.O_RDWR | _FLAGS)
            os.close(node.fd)
            node.fd = fd
        return node.fd

    def keep(self, path: bytes) -> None:
        """It is about to lose its name: who has it open keeps it."""
        node = self._table.current(path)
        if node is not None and node.opens and node.entry.version == WRITTEN:
            with suppress(OSError):
                self.descriptor(node)

    def closed(self, node: Node) -> None:
        fd, node.fd = node.fd, NOT_OPEN
        if fd == NOT_OPEN:
            return
        if node.is_gone:  # to free its blocks may take long
            threading.Thread(target=os.close, args=(fd,), daemon=True).start()
        else:
            os.close(fd)


def _opened(path: bytes) -> int:
    """For both where that is allowed, else for what is."""
    for mode in (os.O_RDWR, os.O_RDONLY):
        with suppress(PermissionError):
            return os.open(path, mode | _FLAGS)
    return os.open(path, os.O_WRONLY | _FLAGS)
