"""Where versions lie on a host's disk: a file each, sparse while parts are missing; small ones that came
together in packs. Blocks, briefly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .direct import open_direct
from .packs import Packs
from .source import Bytes

__all__ = ["CacheFiles"]

_PART = ".part"
_BOOT = "boot"
_PACKS = "packs"
_LEFT_FREE = 1024**3


class CacheFiles:
    """A directory that one process at a time uses.

    A whole version has its number as its name; it is trusted in a later life if its size is right, unless the
    machine was restarted since: then what the disk lost is not to be known.
    """

    def __init__(self, directory: Path) -> None:
        """
        Raises:
            OSError: it cannot be made.
        """
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        mark = directory / _BOOT
        if not mark.exists() or mark.read_bytes() != boot:
            self._wipe()
            mark.write_bytes(boot)
        self._packs = Packs(str(directory / _PACKS))

    def whole(self) -> Iterator[tuple[int, int]]:
        """Versions that an earlier life left, with their sizes; its unfinished ones are removed."""
        yield from self._packs.sizes()
        for folder in self._folders():
            for found in os.scandir(folder) if os.path.basename(folder) != _PACKS else ():
                with suppress(OSError, ValueError):
                    if found.name.endswith(_PART):
                        os.unlink(found.path)
                    else:
                        yield int(found.name, 16), found.stat().st_size

    def has_whole(self, version: int, size: int) -> bool:
        try:
            return self._packs.has(version, size) or os.stat(self._path(version)).st_size == size
        except OSError:
            return False

    def open_part(self, version: int) -> tuple[int, int]:
        """A new file, open twice: as `direct.write` takes it.

        Raises:
            OSError: it cannot be made: the disk is full, most likely.
        """
        path = f"{self._path(version)}{_PART}"
        return self._open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), open_direct(path)

    def open_whole(self, version: int) -> tuple[int, int]:
        """A descriptor, and where the version begins in it.

        Raises:
            OSError: it is not there any more.
        """
        with suppress(FileNotFoundError):
            return self._packs.open(version)
        return os.open(self._path(version), os.O_RDONLY | os.O_CLOEXEC), 0

    def finish(self, version: int) -> None:
        """What was a part is whole."""
        path = self._path(version)
        os.rename(f"{path}{_PART}", path)

    def put(self, version: int, data: bytes | memoryview) -> None:
        """A whole small version in one write, which is either all there afterwards or of the wrong size.

        Raises:
            OSError: the disk is full.
        """
        path = self._path(version)
        fd = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(28, "no room for all of it")
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)

    def pack(self) -> int:
        """The number of a new pack, for `put_together` and then `packed`."""
        return self._packs.number()

    def put_together(self, pack: int, contents: Sequence[tuple[int, Bytes]]) -> None:
        """Whole small versions in one write, in any thread.

        Raises:
            OSError: the disk is full.
        """
        self._packs.write(pack, contents)

    def packed(self, pack: int, contents: Sequence[tuple[int, Bytes]]) -> None:
        """They are there from now on."""
        self._packs.add(pack, [(version, len(data)) for version, data in contents])

    def lacking(self, room: int) -> int:
        """Bytes that the disk lacks for so many more: a GiB, or a tenth of a small disk, is left to others,
        who may need it as the cache never does. Negative: it has more.
        """
        disk = os.statvfs(self._directory)
        left_free = min(_LEFT_FREE, disk.f_blocks * disk.f_frsize // 10)
        return left_free + room - disk.f_bavail * disk.f_frsize

    def remove(self, version: int) -> None:
        for left, data in self._packs.remove(version):
            with suppress(OSError):
                self.put(left, data)
        path = self._path(version)
        for one in (path, f"{path}{_PART}"):
            with suppress(OSError):
                os.unlink(one)

    def _path(self, version: int) -> str:
        return f"{self._directory}/{version & 0xFF:02x}/{version:016x}"

    def _open(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def _folders(self) -> list[str]:
        return [found.path for found in os.scandir(self._directory) if found.is_dir()]

    def _wipe(self) -> None:
        for folder in self._folders():
            shutil.rmtree(folder, ignore_errors=True)
