"""Recording a session: calls and answers as they come, and what was edited between them."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from sysconfig import get_path
from typing import Any

import anyio
import anyio.to_thread

from ... import __version__
from ...runtime.errors import Conflict, MilkweedError, Unavailable
from ...runtime.paths import Places
from ..redaction import Redactor, secrets_of
from .answers import Answer
from .format import Header, Step, ToolStep, dump_line
from .naming import Names, mapped
from .workspace import TextFiles

__all__ = ["Recorder", "open_recorder"]

_log = logging.getLogger("milkweed.server")
_CALLS_WITH_WORKSPACE = ("allocate_mesh",)
_CALLS_THAT_WRITE_HERE = ("fetch_files",)


class Recorder:
    """Made by `open_recorder`. What it cannot write is lost and logged; no call fails for it."""

    def __init__(self, file: Path, toolsets: str) -> None:
        self._file = file
        self._toolsets = toolsets
        self._names = Names(_places())
        self._redact = Redactor(secrets_of(os.environ))
        self._files: TextFiles | None = None
        self._begun = False
        self._broken = False
        self._lock = anyio.Lock()

    async def before_call(self) -> None:
        """Edits that were made until now belong before it."""
        async with self._lock:
            await self._write_edits()

    async def call(self, name: str, arguments: Mapping[str, Any], answer: Answer, duration_s: float) -> None:
        """A call that was answered."""
        async with self._lock:
            if not self._begun:
                self._begin(name, answer)
            if self._files is None and name in _CALLS_WITH_WORKSPACE and answer.result is not None:
                await self._follow(str(answer.result.get("workspace", "")))
            elif self._files is not None and name in _CALLS_THAT_WRITE_HERE:
                await anyio.to_thread.run_sync(self._files.edits)
            self._names.find(arguments)
            self._names.find(answer.result if answer.result is not None else answer.text)
            self._write(
                ToolStep(
                    name=name,
                    arguments=self._told(dict(arguments)),
                    text="" if answer.result is not None else self._told(answer.text),
                    result=None if answer.result is None else self._told(dict(answer.result)),
                    is_error=answer.is_error,
                    duration_s=round(duration_s, 2),
                )
            )

    async def finish(self) -> None:
        """Edits after the last call."""
        async with self._lock:
            await self._write_edits()

    def _begin(self, name: str, answer: Answer) -> None:
        self._begun = True
        shape = {}
        if name in _CALLS_WITH_WORKSPACE and answer.result is not None:
            shape = {key: answer.result[key] for key in ("hosts", "procs_per_host") if key in answer.result}
        self._write(
            Header(
                milkweed=__version__,
                toolsets=self._toolsets,
                workspace=self._beside.name,
                scheduler=str((answer.result or {}).get("scheduler", "local")),
                shape=shape,
            )
        )

    @property
    def _beside(self) -> Path:
        """Where the workspace goes as it was at first."""
        return self._file.with_suffix(".workspace")

    async def _follow(self, workspace: str) -> None:
        if not workspace:
            return
        self._names.bind("workspace", workspace)
        files = TextFiles(Path(workspace))

        def copy() -> None:
            files.edits()
            files.copy_to(self._beside)

        try:
            await anyio.to_thread.run_sync(copy)
        except OSError as error:
            self._lose(error)
        self._files = files

    async def _write_edits(self) -> None:
        if self._files is None:
            return
        for edit in await anyio.to_thread.run_sync(self._files.edits):
            text = None if edit.text is None else self._redact(edit.text)
            self._write(edit.model_copy(update={"text": text, "diff": self._redact(edit.diff)}))

    def _told(self, value: Any) -> Any:
        return self._names.abstract(mapped(value, self._redact))

    def _write(self, record: Header | Step) -> None:
        if self._broken:
            return
        try:
            with self._file.open("a", encoding="utf-8") as out:
                out.write(dump_line(record))
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self._broken = True
        _log.error("the recording %s ends here: %s", self._file, error)


def _places() -> dict[str, str]:
    try:
        places = Places.from_environment()
    except MilkweedError:  # each call will say so
        return {}
    own = {"packages": get_path("purelib"), "stdlib": get_path("stdlib")}
    return {"state": str(places.state), "home": str(Path.home()), **own}


@asynccontextmanager
async def open_recorder(file: Path, toolsets: str) -> AsyncIterator[Recorder]:
    """
    Raises:
        Conflict: file_exists. Unavailable: recording_failed, it cannot be written.
    """
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise Conflict(
            "file_exists", f"{file} is there", "Record to another file, or remove that one."
        ) from None
    except OSError as error:
        raise Unavailable(
            "recording_failed", f"{file} cannot be written: {error.strerror}", "Give another place."
        ) from None
    recorder = Recorder(file.absolute(), toolsets)
    try:
        yield recorder
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(10.0):
            await recorder.finish()
