"""What a keeper leaves of a directory's versions for the next one (`mounts.versions.Ledger`): a log of lines.

A line is a JSON object of paths (latin-1) and what they were shown with; later ones hold. A kill may cut the
last one.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["VersionsLog", "kept_versions"]

logger = logging.getLogger(__name__)

Versions = Mapping[bytes, tuple[int, int]]
"""By path: the version, and the mtime that it was shown with."""

_LONG = 1 << 20


class VersionsLog:
    """Written without a wait for the disk: a keeper may be killed, and goes with the machine. A full disk is
    no reason to stop.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._size = _LONG

    @property
    def is_long(self) -> bool:
        """Whether it is to begin anew; so it is at first."""
        return self._size >= _LONG

    def begin(self, versions: Versions) -> None:
        """Starts again with all that is to be kept."""
        new = self._file.with_suffix(".new")
        self._size = self._write(new, versions, os.O_TRUNC)
        try:
            os.replace(new, self._file)
        except OSError as error:
            logger.warning("what the versions of a directory are is not kept: %s", error)

    def add(self, versions: Versions) -> None:
        if versions:
            self._size += self._write(self._file, versions, os.O_APPEND)

    def _write(self, file: Path, versions: Versions, flag: int) -> int:
        line = json.dumps({path.decode("latin-1"): pair for path, pair in versions.items()}) + "\n"
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o600)
            try:
                return os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            logger.warning("what the versions of a directory are is not kept: %s", error)
            return 0


def kept_versions(file: Path) -> dict[bytes, tuple[int, int]]:
    """All that can be read of it; nothing, where there is none."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        logger.warning("what the versions of a directory were is not known: %s", error)
        return {}
    versions: dict[bytes, tuple[int, int]] = {}
    for line in lines:
        try:
            read = {
                path.encode("latin-1"): (int(pair[0]), int(pair[1]))
                for path, pair in json.loads(line).items()
            }
        except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            logger.warning("a line of what the versions of a directory were cannot be read: %s", error)
        else:
            versions |= read
    return versions
