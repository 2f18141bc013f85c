"""Files of this host, read only. Blocking work runs in threads of our own, with a deadline each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..errors import Unavailable
from ..file_records import FileChunk, FileDigest, FileEntry, FileListing, FileText
from ..names import quoted
from .listing import list_path, stat_path
from .opening import explain, named_path
from .reading import Bounds, digest_file, read_chunk, read_text

__all__ = ["Files"]

_TIMEOUT_S = 15.0
# Work that knows its deadline ends by itself this much earlier, and says how far it came.
_MARGIN_S = 3.0
_THREADS = 8

ResultT = TypeVar("ResultT")


class Files(Actor):
    """Paths are absolute or relative to the workspace. Only regular files and directories are opened.

    Every endpoint raises NotFound (`file_not_found`, with the nearest names), InvalidArgument
    (`invalid_path`: no regular file, or not readable), and Unavailable (`deadline_exceeded`) when the file
    system hangs.
    """

    def __init__(self, context: HostContext, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._context = context
        self._timeout_s = timeout_s
        # A thread that hangs in the kernel cannot be ended: it holds its place here and no other one.
        self._threads = anyio.CapacityLimiter(_THREADS)

    @endpoint
    async def stat(self, path: str) -> FileEntry:
        """What a path is, links not followed."""

        def stat(path: str, _: Bounds) -> FileEntry:
            try:
                return stat_path(path)
            except (OSError, ValueError) as error:
                raise explain(error, path) from error

        return await self._in_thread(path, stat)

    @endpoint
    async def list(self, path: str, pattern: str | None = None, limit: int = 200) -> FileListing:
        """Entries of a directory that match a glob (`*.pt`, `**/*.log`), sorted, `limit` at most."""
        return await self._in_thread(
            path, lambda path, bounds: list_path(path, pattern, limit, bounds.deadline)
        )

    @endpoint
    async def read(
        self,
        path: str,
        offset: int = 0,
        limit: int | None = None,
        tail: int | None = None,
        grep: str | None = None,
        max_bytes: int = 8192,
    ) -> FileText:
        """A part of a file as text; see `read_text`."""
        return await self._in_thread(
            path,
            lambda path, bounds: read_text(
                path, bounds, offset=offset, limit=limit, tail=tail, grep=grep, max_bytes=max_bytes
            ),
        )

    @endpoint
    async def digest(self, path: str) -> FileDigest:
        """Size, time and SHA-256 of a file, to tell whether hosts have the same one."""
        return await self._in_thread(path, digest_file)

    @endpoint
    async def chunk(self, path: str, offset: int, length: int) -> FileChunk:
        """Up to 1 MiB of a file's bytes."""
        return await self._in_thread(path, lambda path, _: read_chunk(path, offset, length))

    async def _in_thread(self, path: str, work: Callable[[str, Bounds], ResultT]) -> ResultT:
        path = self._context.resolve(path)
        bounds = Bounds(time.monotonic() + max(self._timeout_s - _MARGIN_S, self._timeout_s / 2))
        try:
            with anyio.fail_after(self._timeout_s):
                return await anyio.to_thread.run_sync(
                    lambda: work(named_path(path), bounds), abandon_on_cancel=True, limiter=self._threads
                )
        except TimeoutError:
            raise Unavailable(
                "deadline_exceeded",
                f"{quoted(path)} did not answer within {self._timeout_s:g} s: its file system may hang",
                "See what is mounted there with a run of `mount` or `df`.",
            ) from None
        finally:
            bounds.gone.set()
